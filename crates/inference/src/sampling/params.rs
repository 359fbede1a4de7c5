//! What a user may ask of sampling, in the units and ranges of OpenAI's API, vLLM and llama.cpp.

use super::SamplingError;

/// Most tokens whose log-probabilities are given at each step, as in OpenAI's API.
pub const MAX_LOGPROBS: usize = 20;
/// Most stop strings of a request.
pub const MAX_STOPS: usize = 64;
/// Longest stop string, in bytes.
pub const MAX_STOP_BYTES: usize = 4096;

/// How to choose tokens, and when to end. The default samples from the model's own distribution until it ends itself.
///
/// Numbers are `f64` because that is what JSON and the command line give, and 1 − top_p is taken before rounding to
/// float32.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// Divides the logits. 0 (or less than 1e-5) is greedy: the most likely token, the lowest id among equals.
    pub temperature: f64,
    /// Keeps the k most likely tokens, and those equal to the last of them. 0 is off.
    pub top_k: usize,
    /// Keeps the smallest set of most likely tokens whose probability reaches p, at least one. 1 is off.
    pub top_p: f64,
    /// Keeps tokens that are at least this share as likely as the most likely one. 0 is off.
    pub min_p: f64,
    /// Keeps the tokens whose information is nearest to the entropy, up to this mass (Meister et al. 2022). 1 is off.
    pub typical_p: f64,
    /// Divides positive and multiplies negative logits of every id that occurs in prompt or output, once. 1 is off.
    pub repetition_penalty: f64,
    /// Is subtracted from the logit of every id that occurs in the output. From −2 to 2; 0 is off.
    pub presence_penalty: f64,
    /// Is subtracted for every occurrence in the output. From −2 to 2; 0 is off.
    pub frequency_penalty: f64,
    /// Makes the choice repeatable. None takes a random seed.
    pub seed: Option<u64>,
    /// Is added to the logit of a token: from −100 to 100, or −∞, which forbids it.
    pub logit_bias: Vec<(u32, f32)>,
    /// Most tokens to generate; 0 evaluates the prompt only. None: until the context is full.
    pub max_tokens: Option<usize>,
    /// The text ends before the earliest of these.
    pub stop: Vec<String>,
    /// Further ids that end the text, besides the model's own.
    pub stop_ids: Vec<u32>,
    /// Log-probabilities: None for none, `Some(n)` for the chosen token and the n most likely.
    pub logprobs: Option<usize>,
    /// Goes on after the model's end-of-sequence ids.
    pub ignore_eos: bool,
}

impl Default for SamplingParams {
    fn default() -> SamplingParams {
        SamplingParams {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            seed: None,
            logit_bias: Vec::new(),
            max_tokens: None,
            stop: Vec::new(),
            stop_ids: Vec::new(),
            logprobs: None,
            ignore_eos: false,
        }
    }
}

impl SamplingParams {
    /// The most likely token at each step.
    pub fn greedy() -> SamplingParams {
        SamplingParams { temperature: 0.0, ..SamplingParams::default() }
    }

    /// Is the most likely token taken, whatever the filters say?
    pub fn is_greedy(&self) -> bool {
        self.temperature < 1e-5
    }

    /// Checks everything that does not need the model.
    ///
    /// # Errors
    /// [`SamplingError::OutOfRange`], [`SamplingError::TooMany`] or [`SamplingError::StopLength`], naming the parameter.
    pub fn check(&self) -> Result<(), SamplingError> {
        let in_range = |name, value: f64, ok: bool, expected| match ok {
            true => Ok(()),
            false => Err(SamplingError::OutOfRange { name, value, expected }),
        };
        let finite = |x: f64| (x as f32).is_finite();
        let (t, r) = (self.temperature, self.repetition_penalty);
        in_range("temperature", t, t >= 0.0 && finite(t), "a number from 0 (greedy) up")?;
        in_range("top_p", self.top_p, (0.0..=1.0).contains(&self.top_p), "a number from 0 to 1 (off)")?;
        in_range("min_p", self.min_p, (0.0..=1.0).contains(&self.min_p), "a number from 0 (off) to 1")?;
        let p = self.typical_p;
        in_range("typical_p", p, p > 0.0 && p <= 1.0, "a number above 0, up to 1 (off)")?;
        in_range("repetition_penalty", r, (0.01..=100.0).contains(&r), "a number from 0.01 to 100; 1 is off")?;
        for (name, value) in
            [("presence_penalty", self.presence_penalty), ("frequency_penalty", self.frequency_penalty)]
        {
            in_range(name, value, (-2.0..=2.0).contains(&value), "a number from -2 to 2; 0 is off")?;
        }
        for &(_, bias) in &self.logit_bias {
            let ok = (-100.0..=100.0).contains(&bias) || bias == f32::NEG_INFINITY;
            in_range("logit_bias", bias.into(), ok, "a number from -100 to 100, or -inf")?;
        }
        if let Some(count) = self.logprobs.filter(|&n| n > MAX_LOGPROBS) {
            return Err(SamplingError::OutOfRange { name: "logprobs", value: count as f64, expected: "0 to 20" });
        }
        if self.stop.len() > MAX_STOPS {
            return Err(SamplingError::TooMany { name: "stop", count: self.stop.len(), limit: MAX_STOPS });
        }
        for (index, stop) in self.stop.iter().enumerate() {
            if stop.is_empty() || stop.len() > MAX_STOP_BYTES {
                return Err(SamplingError::StopLength { index, bytes: stop.len(), limit: MAX_STOP_BYTES });
            }
        }
        Ok(())
    }

    /// Checks the token ids against the size of the vocabulary.
    ///
    /// # Errors
    /// [`SamplingError::NoSuchToken`].
    pub fn check_ids(&self, vocab: usize) -> Result<(), SamplingError> {
        let bias = self.logit_bias.iter().map(|&(id, _)| ("logit_bias", id));
        let stops = self.stop_ids.iter().map(|&id| ("stop_ids", id));
        match bias.chain(stops).find(|&(_, id)| id as usize >= vocab) {
            Some((name, id)) => Err(SamplingError::NoSuchToken { name, id, vocab }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_by_name_what_is_out_of_range() {
        let with = |change: &dyn Fn(&mut SamplingParams)| {
            let mut params = SamplingParams::default();
            change(&mut params);
            params.check().unwrap_err().to_string()
        };
        assert_eq!(with(&|p| p.temperature = -0.5), "temperature is -0.5, expected a number from 0 (greedy) up");
        assert_eq!(with(&|p| p.temperature = f64::NAN), "temperature is NaN, expected a number from 0 (greedy) up");
        assert_eq!(with(&|p| p.top_p = 1.5), "top_p is 1.5, expected a number from 0 to 1 (off)");
        assert_eq!(with(&|p| p.min_p = -0.1), "min_p is -0.1, expected a number from 0 (off) to 1");
        assert_eq!(with(&|p| p.typical_p = 0.0), "typical_p is 0, expected a number above 0, up to 1 (off)");
        assert_eq!(
            with(&|p| p.repetition_penalty = 0.0),
            "repetition_penalty is 0, expected a number from 0.01 to 100; 1 is off"
        );
        assert_eq!(
            with(&|p| p.presence_penalty = 2.5),
            "presence_penalty is 2.5, expected a number from -2 to 2; 0 is off"
        );
        assert_eq!(
            with(&|p| p.frequency_penalty = -3.0),
            "frequency_penalty is -3, expected a number from -2 to 2; 0 is off"
        );
        let message = with(&|p| p.logit_bias = vec![(3, 101.0)]);
        assert_eq!(message, "logit_bias is 101, expected a number from -100 to 100, or -inf");
        assert_eq!(with(&|p| p.logprobs = Some(21)), "logprobs is 21, expected 0 to 20");
        assert_eq!(
            with(&|p| p.stop = vec!["a".into(), String::new()]),
            "stop string 1 has 0 bytes, expected 1 to 4096"
        );
        assert_eq!(with(&|p| p.stop = vec!["a".into(); 65]), "stop has 65 entries, expected at most 64");
    }

    #[test]
    fn refuses_ids_of_another_vocabulary() {
        let params = SamplingParams { stop_ids: vec![7, 8], ..Default::default() };
        assert!(params.check_ids(9).is_ok());
        let message = params.check_ids(8).unwrap_err().to_string();
        assert_eq!(message, "stop_ids names token 8, expected an id below 8: is it of another model's vocabulary?");
    }

    #[test]
    fn accepts_the_ends_of_every_range() {
        let params = SamplingParams {
            temperature: 0.0,
            top_p: 0.0,
            min_p: 1.0,
            presence_penalty: -2.0,
            frequency_penalty: 2.0,
            logit_bias: vec![(0, -100.0), (1, f32::NEG_INFINITY)],
            max_tokens: Some(0),
            logprobs: Some(20),
            ..Default::default()
        };
        params.check().unwrap();
        assert!(params.is_greedy() && !SamplingParams::default().is_greedy());
    }
}
