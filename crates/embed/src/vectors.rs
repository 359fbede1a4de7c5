//! What one does with vectors.

/// Cosine of the angle between two vectors of the same length; 0 if either has no length.
pub fn cosine(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len(), "vectors of the same model");
    let dot = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>();
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if lengths > 0.0 { (dot(a, b) / lengths) as f32 } else { 0.0 }
}

/// Divides a vector by its Euclidean length; one without length stays as it is.
pub fn normalize(vector: &mut [f32]) {
    let length = vector.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|v| *v = (f64::from(*v) / length) as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cosine_is_about_direction_only() {
        assert_eq!(cosine(&[1.0, 2.0], &[2.0, 4.0]), 1.0);
        assert_eq!(cosine(&[1.0, 0.0], &[0.0, 3.0]), 0.0);
        assert_eq!(cosine(&[0.0, 0.0], &[0.0, 3.0]), 0.0);
    }

    #[test]
    fn a_zero_vector_stays_zero() {
        let mut zero = [0.0; 3];
        normalize(&mut zero);
        assert_eq!(zero, [0.0; 3]);
    }
}
