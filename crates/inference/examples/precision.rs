//! How far are the logits of decoding at the default precision from those at precision exact?
//!
//!     cargo run --release -p lattice-inference --example precision -- MODEL TEXT [TOKENS]
//!
//! Feeds the first tokens of a text one by one to both, and compares all logits of every step.

use lattice_inference::LanguageModel;
use models::{Batch, Caches, Forward};
use ops::{Cpu, CpuOptions, KvFormat, Past, Precision};
use std::error::Error;
use std::sync::Arc;

const PAGE_TOKENS: usize = 256;

/// A model with the caches of one sequence.
struct Sequence {
    model: LanguageModel,
    caches: Caches,
    past: Past,
}

impl Sequence {
    fn open(path: &str, precision: Precision, tokens: usize) -> Result<Sequence, Box<dyn Error>> {
        let cpu = Cpu::new(&CpuOptions { precision, ..CpuOptions::default() })?;
        let model = LanguageModel::open(path, Arc::new(cpu))?;
        let kv = if precision == Precision::Exact { KvFormat::F32 } else { KvFormat::F16 };
        let pages = tokens.div_ceil(PAGE_TOKENS);
        let states = model.loaded().model.states();
        let caches = Caches::new(&**model.ops(), &states, pages, PAGE_TOKENS, 1, kv);
        Ok(Sequence { model, caches, past: Past { pages: (0..pages as u32).collect(), ..Past::default() } })
    }

    /// Logits of the token behind `id`.
    fn step(&mut self, id: u32) -> Result<Vec<f32>, Box<dyn Error>> {
        let mut batch = Batch::default();
        batch.push_after(&[id], self.past.clone())?;
        let (ops, loaded) = (&**self.model.ops(), self.model.loaded());
        let cx = Forward::cached(ops, &batch, &self.caches);
        let head = loaded.head.as_ref().ok_or("a model without a language model's head")?;
        self.past.tokens += 1;
        Ok(ops.read(&head.logits(&cx, &loaded.model.forward(&cx)))?)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, text, rest @ ..] = &args[..] else { return Err("usage: precision MODEL TEXT [TOKENS]".into()) };
    let tokens = rest.first().map_or(Ok(256), |n| n.parse())?;
    let [mut exact, mut fast] =
        [Sequence::open(path, Precision::Exact, tokens)?, Sequence::open(path, Precision::Default, tokens)?];
    let (mut worst, mut squares, mut count, mut steps) = (0f64, 0f64, 0, Vec::new());
    for &id in exact.model.encode_text(&std::fs::read_to_string(text)?)?.iter().take(tokens) {
        let (a, b) = (exact.step(id)?, fast.step(id)?);
        let differences = a.iter().zip(&b).map(|(a, b)| f64::from(a - b));
        worst = differences.clone().fold(worst, |m, d| m.max(d.abs()));
        squares += differences.map(|d| d * d).sum::<f64>();
        count += a.len();
        let (best, second) = best_two(&a);
        steps.push((best == best_two(&b).0, f64::from(a[best] - a[second])));
    }
    let agree =
        |steps: &[(bool, f64)]| format!("{} of {}", steps.iter().filter(|(same, _)| *same).count(), steps.len());
    println!(
        "largest difference {worst:.3}, rms {:.4}, over {count} logits",
        (squares / f64::from(count as u32)).sqrt()
    );
    println!("greedy choices that agree: {}", agree(&steps));
    steps.retain(|(_, margin)| *margin > 2.0 * worst);
    println!("of those that lead by more than twice the largest difference: {}", agree(&steps));
    Ok(())
}

/// The indices of the two largest logits, the lower index first among equals.
fn best_two(logits: &[f32]) -> (usize, usize) {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    let by_size = |a: &usize, b: &usize| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b));
    order.select_nth_unstable_by(1, by_size);
    (order[0], order[1])
}
