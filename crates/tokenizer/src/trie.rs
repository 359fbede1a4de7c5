//! All keys that are a prefix of a text: a byte trie whose children lie side by side.

/// Maps byte strings to numbers; the number of nodes is bounded by the total length of the keys.
#[derive(Debug, Default)]
pub(crate) struct Trie {
    nodes: Vec<Node>,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    label: u8,
    children: u16,
    first: u32,
    value: u32,
}

const NONE: u32 = u32::MAX;

impl Trie {
    /// Keys must be distinct and not empty.
    pub(crate) fn new<'a>(keys: impl IntoIterator<Item = (&'a str, u32)>) -> Self {
        let mut keys: Vec<(&[u8], u32)> = keys.into_iter().map(|(k, v)| (k.as_bytes(), v)).collect();
        keys.sort_unstable();
        let mut nodes = vec![Node { label: 0, children: 0, first: 0, value: NONE }];
        // Each node stands for the keys `lo..hi`, which agree in their first `depth` bytes.
        let mut work = std::collections::VecDeque::from([(0, 0, keys.len(), 0)]);
        while let Some((node, mut lo, hi, depth)) = work.pop_front() {
            let node: usize = node;
            if lo < hi && keys[lo].0.len() == depth {
                nodes[node].value = keys[lo].1;
                lo += 1;
            }
            nodes[node].first = nodes.len() as u32;
            while lo < hi {
                let label = keys[lo].0[depth];
                let end = lo + keys[lo..hi].partition_point(|k| k.0[depth] == label);
                work.push_back((nodes.len(), lo, end, depth + 1));
                nodes[node].children += 1;
                nodes.push(Node { label, children: 0, first: 0, value: NONE });
                lo = end;
            }
        }
        Self { nodes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.len() < 2
    }

    /// Length and value of every key that `text` starts with, shortest first.
    pub(crate) fn prefixes<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = (usize, u32)> + 'a {
        let mut node = self.nodes.first().copied();
        text.iter()
            .enumerate()
            .map_while(move |(i, &byte)| {
                let parent = node?;
                let first = parent.first as usize;
                let children = &self.nodes[first..first + usize::from(parent.children)];
                let found = if children.len() < 8 {
                    children.iter().position(|n| n.label == byte)
                } else {
                    children.binary_search_by_key(&byte, |n| n.label).ok()
                };
                node = found.map(|at| children[at]);
                node.map(|n| (i + 1, n.value))
            })
            .filter(|&(_, value)| value != NONE)
    }

    /// The longest key that `text` starts with.
    pub(crate) fn longest(&self, text: &[u8]) -> Option<(usize, u32)> {
        self.prefixes(text).last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_every_prefix_shortest_first() {
        let trie = Trie::new([("a", 1), ("abc", 2), ("ab", 3), ("b", 4), ("ä", 5)]);
        assert_eq!(trie.prefixes(b"abcd").collect::<Vec<_>>(), [(1, 1), (2, 3), (3, 2)]);
        assert_eq!(trie.longest("äb".as_bytes()), Some((2, 5)));
        assert_eq!(trie.longest(b"xa"), None);
        assert_eq!(Trie::default().longest(b"a"), None);
    }
}
