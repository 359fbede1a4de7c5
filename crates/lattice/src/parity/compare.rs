//! Is an output near enough to the reference?

use super::case::Case;
use super::{Row, Status};
use serde::{Deserialize, Serialize};
use weights::{Format, Tensor};

/// How far a value may be: `|ours − expected| ≤ atol + rtol · |expected|`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tolerance {
    pub(crate) atol: f64,
    #[serde(default)]
    pub(crate) rtol: f64,
}

impl Tolerance {
    pub(crate) const EXACT: Tolerance = Tolerance { atol: 0.0, rtol: 0.0 };

    pub(crate) fn is_sound(self) -> bool {
        [self.atol, self.rtol].iter().all(|t| t.is_finite() && *t >= 0.0)
    }

    /// Equal infinities are equal; NaN is near to nothing.
    fn holds(self, ours: f64, expected: f64) -> bool {
        ours == expected || (ours - expected).abs() <= self.atol + self.rtol * expected.abs() && expected.is_finite()
    }
}

/// The line of the report about one output.
pub(crate) fn row(
    case: &Case,
    output: &str,
    tolerance: Tolerance,
    ours: Option<&Tensor>,
    expected: Option<&Tensor>,
) -> Row {
    let judged = match (ours, expected) {
        (None, _) => Err(format!("family {} computes no such output", case.family)),
        (_, None) => Err("expected.safetensors has no such output".into()),
        (Some(ours), Some(expected)) => distance(ours, expected, tolerance),
    };
    let row = |status, reason| Row { tolerance: Some(tolerance), ..Row::new(&case.name, output, status, reason) };
    match judged {
        Err(reason) => row(Status::Fail, reason),
        Ok(Distance { max_abs, wrong, values }) => {
            let allowed = (case.may_differ * values as f64).floor() as usize;
            let (status, reason) = match wrong {
                0 => (Status::Ok, String::new()),
                n if n <= allowed => (Status::Ok, format!("{n} of {values} values are further away, {allowed} may be")),
                n => (Status::Fail, format!("{n} of {values} values are further away")),
            };
            Row { max_abs_error: Some(max_abs), ..row(status, reason) }
        }
    }
}

struct Distance {
    max_abs: f64,
    /// How many values are out of tolerance.
    wrong: usize,
    values: usize,
}

fn distance(ours: &Tensor, expected: &Tensor, tolerance: Tolerance) -> Result<Distance, String> {
    if ours.shape() != expected.shape() {
        return Err(format!("our shape is {:?}, expected {:?}", ours.shape(), expected.shape()));
    }
    let (ours, expected) = (values(ours)?, values(expected)?);
    let mut distance = Distance { max_abs: 0.0, wrong: 0, values: ours.len() };
    for (&a, &b) in ours.iter().zip(&expected) {
        let error = if a == b { 0.0 } else { (a - b).abs() };
        if error > distance.max_abs || error.is_nan() {
            distance.max_abs = error;
        }
        distance.wrong += usize::from(!tolerance.holds(a, b));
    }
    Ok(distance)
}

/// Values of any format that outputs have, without loss.
fn values(tensor: &Tensor) -> Result<Vec<f64>, String> {
    match tensor.format() {
        Format::F64 => Ok(tensor.bytes().as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()),
        Format::F32 | Format::F16 | Format::BF16 => {
            tensor.to_f32().map(|v| v.into_iter().map(f64::from).collect()).map_err(|e| e.to_string())
        }
        _ => tensor.to_i64().map(|v| v.into_iter().map(|v| v as f64).collect()).map_err(|e| e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_infinities_are_equal_and_nan_is_never_near() {
        let near = Tolerance { atol: 1.0, rtol: 0.1 };
        assert!(near.holds(f64::INFINITY, f64::INFINITY) && near.holds(22.0, 20.0));
        assert!(!near.holds(0.0, f64::INFINITY) && !near.holds(f64::NEG_INFINITY, f64::INFINITY));
        assert!(!near.holds(f64::NAN, 1.0) && !near.holds(1.0, f64::NAN) && !near.holds(f64::NAN, f64::NAN));
        assert!(Tolerance::EXACT.holds(0.5, 0.5) && !Tolerance::EXACT.holds(0.5, 0.5 + 1e-16 + f64::EPSILON));
    }

    #[test]
    fn a_nan_among_our_values_shows_in_the_error() {
        let ours = Tensor::from_f32("x", vec![3], vec![1.0, f32::NAN, 2.0]);
        let expected = Tensor::from_f32("x", vec![3], vec![1.0, 1.0, 3.0]);
        let got = distance(&ours, &expected, Tolerance { atol: 9.0, rtol: 0.0 }).unwrap();
        assert_eq!(got.wrong, 1);
        let other = Tensor::from_f32("x", vec![3, 1], vec![0.0; 3]);
        assert!(distance(&other, &expected, Tolerance::EXACT).is_err());
    }
}
