//! How does config.json say that positions are rotary? In two styles (`rope_theta` beside `rope_scaling`, or
//! `rope_parameters`), per kind of layer or for all, and scaled in one of several ways.
//!
//! The scalings follow Hugging Face's `modeling_rope_utils.py`, in f64. `freq_factors` is what GGUF files have instead: a
//! divisor for each frequency.

use crate::blocks::{Growth, Rotary};
use crate::config::{Config, MAX_POSITIONS};
use crate::error::Result;
use std::f64::consts::PI;

/// What a family knows about its rotary positions, besides config.json.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The kind of layers that the positions are for (`full_attention`, `sliding_attention`), where kinds differ.
    pub layers: Option<&'a str>,
    /// The key of the base frequency in the older style.
    pub theta: &'a str,
    /// The base frequency where none is given.
    pub base: f64,
    /// The share of a head that is turned where none is given; `None` if the family turns whole heads only.
    pub partial: Option<f64>,
    /// Features of a head.
    pub head_dim: usize,
    /// `max_position_embeddings`.
    pub window: usize,
}

impl Config {
    /// The rotary positions of some layers, and how many of them there are: scaling may allow for more than `window`.
    ///
    /// # Errors
    /// [`crate::ModelError::Option`] for a scaling that is not built, [`crate::ModelError::Config`] for numbers that make
    /// no sense.
    pub fn rotary(&self, asked: Asked) -> Result<(Rotary, usize)> {
        let parameters = match (self.section("rope_parameters")?, asked.layers) {
            (Some(all), Some(layers)) => all.section(layers)?,
            (all, _) => all,
        };
        // A scaling of the older style is the global layers' only.
        let scaling = match asked.layers {
            Some("sliding_attention") => Config::default(),
            _ => self.section("rope_scaling")?.unwrap_or_default(),
        };
        let parameters = parameters.unwrap_or_default();
        let base = parameters.float_or("rope_theta", self.float_or(asked.theta, asked.base)?)?;
        let place = if scaling.is_empty() { &parameters } else { &scaling };
        let base = place.float_or("rope_theta", base)?;

        let kind = place.text_or(place.either(&["rope_type", "type"]), "default")?;
        let head_dim = asked.head_dim;
        let share = self.float_or("partial_rotary_factor", asked.partial.unwrap_or(1.0))?;
        let share = place.float_or("partial_rotary_factor", share)?;
        if share > 1.0 || share < 1.0 && asked.partial.is_none() && kind != "proportional" {
            return Err(place.not_built("partial_rotary_factor", "1.0"));
        }
        // Proportional: all features turn, most of them not at all.
        let rotary = if kind == "proportional" { head_dim } else { (head_dim as f64 * share) as usize };
        if rotary == 0 || !rotary.is_multiple_of(2) {
            return Err(self.wrong("head_dim", "a number of which an even part can be turned"));
        }
        let mut turned = Rotary::plain(head_dim, rotary, base);
        let mut window = asked.window;
        let factor = || match place.get("factor") {
            None => Err(place.wrong("factor", "a positive number")),
            Some(_) => place.float_or("factor", 1.0),
        };
        match kind {
            "default" => {}
            "linear" => {
                let factor = factor()?;
                turned.frequencies.iter_mut().for_each(|f| *f /= factor);
            }
            "proportional" => {
                let (factor, turning) = (place.float_or("factor", 1.0)?, (share * head_dim as f64 / 2.0) as usize);
                turned.frequencies.iter_mut().for_each(|f| *f /= factor);
                turned.frequencies[turning..].fill(0.0);
            }
            "dynamic" => {
                let factor = factor()?;
                if rotary == 2 {
                    return Err(self.wrong("head_dim", "more than 2 features to be turned"));
                }
                turned.growth = Some(Growth { window, base, factor });
                window = longer(window, factor);
            }
            "llama3" => llama3(place, &mut turned.frequencies, factor()?, asked.window)?,
            "freq_factors" => {
                let key = "rope_freq_factors";
                let factors = place.get(key).and_then(|f| f.as_array()).filter(|f| f.len() == turned.frequencies.len());
                let wrong = || place.wrong(key, format!("{} positive numbers", rotary / 2));
                for (frequency, factor) in turned.frequencies.iter_mut().zip(factors.ok_or_else(wrong)?) {
                    *frequency /= factor.as_f64().filter(|f| *f > 0.0).ok_or_else(wrong)?;
                }
            }
            "yarn" => {
                let factor = factor()?;
                let original = place.size_or("original_max_position_embeddings", MAX_POSITIONS, window)?;
                turned.amplitude = yarn_amplitude(place, factor)?;
                yarn(place, &mut turned.frequencies, base, factor, original)?;
                window = window.max(longer(original, factor));
            }
            _ => {
                let key = place.either(&["rope_type", "type"]);
                return Err(place.not_built(key, "default, linear, dynamic, yarn, llama3, proportional"));
            }
        }
        Ok((turned, window))
    }
}

fn longer(window: usize, factor: f64) -> usize {
    ((window as f64 * factor) as usize).clamp(window, MAX_POSITIONS)
}

/// Slow pairs are slowed down further, fast ones are left alone, those between are interpolated.
fn llama3(place: &Config, frequencies: &mut [f64], factor: f64, window: usize) -> Result<()> {
    let original = place.size_or("original_max_position_embeddings", MAX_POSITIONS, window)? as f64;
    let (low, high) = (place.float_or("low_freq_factor", 1.0)?, place.float_or("high_freq_factor", 4.0)?);
    if low >= high {
        return Err(place.wrong("high_freq_factor", format!("more than low_freq_factor = {low}")));
    }
    for frequency in frequencies {
        let turns = original * *frequency / (2.0 * PI);
        if turns < low {
            *frequency /= factor;
        } else if turns <= high {
            let smooth = (turns - low) / (high - low);
            *frequency = (1.0 - smooth) * *frequency / factor + smooth * *frequency;
        }
    }
    Ok(())
}

/// YaRN (Peng et al. 2023): interpolation for pairs that turn seldom in the original window, none for fast ones.
fn yarn(place: &Config, frequencies: &mut [f64], base: f64, factor: f64, original: usize) -> Result<()> {
    if base <= 1.0 {
        return Err(place.wrong("rope_theta", "more than 1"));
    }
    let pairs = frequencies.len() as f64;
    let pair_of = |turns: f64| pairs * (original as f64 / (turns * 2.0 * PI)).ln() / base.ln();
    let mut low = pair_of(place.float_or("beta_fast", 32.0)?);
    let mut high = pair_of(place.float_or("beta_slow", 1.0)?);
    if place.flag_or("truncate", true)? {
        (low, high) = (low.floor(), high.ceil());
    }
    (low, high) = (low.max(0.0), high.min(2.0 * pairs - 1.0));
    if low == high {
        high += 0.001;
    }
    for (i, frequency) in frequencies.iter_mut().enumerate() {
        let interpolated = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
        *frequency *= interpolated / factor + (1.0 - interpolated);
    }
    Ok(())
}

/// What YaRN multiplies cosines and sines by.
fn yarn_amplitude(place: &Config, factor: f64) -> Result<f64> {
    let scale = |m: f64| if factor <= 1.0 { 1.0 } else { 0.1 * m * factor.ln() + 1.0 };
    let inferred = match (place.float_or("mscale", 1.0)?, place.float_or("mscale_all_dim", 1.0)?) {
        (m, all) if place.get("mscale").is_some() && place.get("mscale_all_dim").is_some() => scale(m) / scale(all),
        _ => scale(1.0),
    };
    place.float_or("attention_factor", inferred)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rotary(config: serde_json::Value) -> Result<(Rotary, usize)> {
        let config = Config::from_json(&serde_json::to_vec(&config).unwrap()).unwrap();
        let asked = Asked { layers: None, theta: "rope_theta", base: 10_000.0, partial: None, head_dim: 8, window: 64 };
        config.rotary(asked)
    }

    #[test]
    fn both_styles_say_the_same() {
        let old = json!({"rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 4.0}});
        let new = json!({"rope_parameters": {"rope_theta": 500.0, "rope_type": "linear", "factor": 4.0}});
        let (old, new) = (rotary(old).unwrap(), rotary(new).unwrap());
        assert_eq!(old, new);
        assert_eq!(old.0.frequencies[0], 0.25);
    }

    #[test]
    fn scalings_follow_the_reference() {
        // transformers' _compute_{llama3,yarn}_parameters in float64, head_dim 8
        let llama3 = json!({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64}});
        let got = rotary(llama3).unwrap().0.frequencies;
        let expected = [1.0, 0.1 / 8.0 * (1.0 - SMOOTH) + 0.1 * SMOOTH, 0.01 / 8.0, 0.001 / 8.0];
        const SMOOTH: f64 = (64.0 * 0.1 / (2.0 * PI) - 1.0) / 3.0;
        for (a, b) in got.iter().zip(expected) {
            assert!((a - b).abs() < 1e-15, "{got:?}");
        }
        let yarn =
            json!({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}});
        let (yarn, window) = rotary(yarn).unwrap();
        assert_eq!(window, 256);
        assert!((yarn.amplitude - 1.138_629_436_111_989).abs() < 1e-12);
    }

    #[test]
    fn factors_divide_the_frequencies_of_their_pairs() {
        let factors =
            |factors| rotary(json!({"rope_parameters": {"rope_type": "freq_factors", "rope_freq_factors": factors}}));
        let got = factors(json!([1.0, 2.0, 4.0, 8.0])).unwrap().0.frequencies;
        let plain = Rotary::plain(8, 8, 10_000.0).frequencies;
        assert_eq!(got, [plain[0], plain[1] / 2.0, plain[2] / 4.0, plain[3] / 8.0]);
        for wrong in [json!(null), json!([1.0]), json!([1.0, 0.0, 1.0, 1.0]), json!([1, "2", 3, 4])] {
            let text = factors(wrong).unwrap_err().to_string();
            assert!(text.ends_with("expected 4 positive numbers"), "{text}");
        }
    }

    #[test]
    fn what_is_not_built_is_named() {
        let refused = |config| rotary(config).unwrap_err().to_string();
        let text = refused(json!({"rope_scaling": {"type": "longrope", "factor": 4.0}}));
        assert!(text.starts_with("config.json: rope_scaling.type is \"longrope\", which is not built"), "{text}");
        let text = refused(json!({"rope_parameters": {"rope_type": "linear"}}));
        assert_eq!(text, "config.json: rope_parameters.factor is missing, expected a positive number");
        let text = refused(json!({"partial_rotary_factor": 0.5}));
        assert!(text.contains("partial_rotary_factor"), "{text}");
    }
}
