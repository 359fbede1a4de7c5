//! Memory of activations: buffers go back to their pool when dropped, so a forward pass allocates only the first time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::thread::ThreadId;

/// Values in a cache line: buffers start at one, where vector loads like it.
const LINE: usize = 16;

/// Buffers waiting for reuse, by length.
#[derive(Default, Debug)]
pub(super) struct Buffers(Mutex<BTreeMap<usize, Shelf>>);

/// Buffers of one length, with the thread that gave each back: the caches near it may hold it.
type Shelf = Vec<(ThreadId, Vec<f32>)>;

impl Buffers {
    /// A buffer for `len` values whose contents are arbitrary.
    pub(super) fn take(self: &Arc<Self>, len: usize) -> Host {
        let wanted = len.next_multiple_of(LINE) + LINE;
        let current = std::thread::current().id();
        let reused = {
            let mut shelves = self.0.lock().expect("no panics under this lock");
            // At most twice the size asked for: a large buffer is not wasted on a small activation.
            let fitting = wanted..=wanted.saturating_mul(2);
            let own = |shelf: &Shelf| shelf.iter().rposition(|(thread, _)| *thread == current);
            let found = shelves.range_mut(fitting.clone()).find_map(|(_, shelf)| Some(shelf.swap_remove(own(shelf)?)));
            found.or_else(|| shelves.range_mut(fitting).find_map(|(_, shelf)| shelf.pop()))
        };
        let reused = reused.map(|(_, data)| data);
        let data = reused.unwrap_or_else(|| vec![0.0; wanted]);
        let misaligned = data.as_ptr().addr() / size_of::<f32>() % LINE;
        Host { data, start: (LINE - misaligned) % LINE, len, home: Arc::downgrade(self) }
    }
}

/// An activation's values in host memory, starting at a cache line.
#[derive(Debug)]
pub(super) struct Host {
    data: Vec<f32>,
    start: usize,
    len: usize,
    home: Weak<Buffers>,
}

impl Host {
    pub(super) fn values(&self) -> &[f32] {
        &self.data[self.start..][..self.len]
    }

    pub(super) fn values_mut(&mut self) -> &mut [f32] {
        &mut self.data[self.start..][..self.len]
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade()
            && let Ok(mut shelves) = home.0.lock()
        {
            let data = std::mem::take(&mut self.data);
            shelves.entry(data.len()).or_default().push((std::thread::current().id(), data));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_serves_the_next_of_its_size() {
        let buffers = Arc::new(Buffers::default());
        let first = buffers.take(1000);
        let address = first.values().as_ptr();
        assert_eq!(address.addr() % 64, 0);
        drop(first);
        assert_eq!(buffers.take(900).values().as_ptr(), address);
        assert_ne!(buffers.take(100).values().len(), 1000);
    }
}
