//! How does a user say which tokens to choose, and when to end? The sampling flags, over what the model recommends.

use crate::error::CliError;
use crate::terminal::Terminal;
use crate::texts::read_text;
use grammar::GrammarSpec;
use inference::LanguageModel;
use inference::sampling::SamplingParams;
use std::path::PathBuf;

/// Sampling flags; without one, what the model's generation_config.json says, else no filter at all.
#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct SamplingArgs {
    /// Most tokens of an answer
    #[arg(short = 'n', long, value_name = "N", help_heading = SAMPLING)]
    max_tokens: Option<usize>,
    /// Divides the logits; 0 is greedy, the lowest id among equals
    #[arg(long, value_name = "T", allow_negative_numbers = true, help_heading = SAMPLING)]
    temperature: Option<f64>,
    /// Keep the K most likely tokens; 0 is off
    #[arg(long, value_name = "K", help_heading = SAMPLING)]
    top_k: Option<usize>,
    /// Keep the fewest tokens whose probability reaches P; 1 is off
    #[arg(long, value_name = "P", allow_negative_numbers = true, help_heading = SAMPLING)]
    top_p: Option<f64>,
    /// Keep tokens at least P times as likely as the likeliest; 0 is off
    #[arg(long, value_name = "P", allow_negative_numbers = true, help_heading = SAMPLING)]
    min_p: Option<f64>,
    /// Keep the tokens nearest to the expected information, up to mass P; 1 is off
    #[arg(long, value_name = "P", allow_negative_numbers = true, help_heading = SAMPLING)]
    typical_p: Option<f64>,
    /// Divides positive and multiplies negative logits of tokens that occurred, in prompt or answer; 1 is off
    #[arg(long, value_name = "R", allow_negative_numbers = true, help_heading = SAMPLING)]
    repetition_penalty: Option<f64>,
    /// Subtracted from logits of tokens that occurred in the answer; 0 is off
    #[arg(long, value_name = "R", allow_negative_numbers = true, help_heading = SAMPLING)]
    presence_penalty: Option<f64>,
    /// Subtracted for each time that a token occurred in the answer; 0 is off
    #[arg(long, value_name = "R", allow_negative_numbers = true, help_heading = SAMPLING)]
    frequency_penalty: Option<f64>,
    /// Makes the choice repeatable
    #[arg(long, value_name = "N", help_heading = SAMPLING)]
    seed: Option<u64>,
    /// End before this text; may be given several times, the earliest in the text wins
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, help_heading = SAMPLING)]
    stop: Vec<String>,
    /// Added to the logit of a token, by id (`lattice tokenize` gives ids): -100 to 100, or -inf; several times
    #[arg(long, value_name = "ID=BIAS", value_parser = bias, help_heading = SAMPLING)]
    logit_bias: Vec<(u32, f32)>,
    /// Go on after the token that ends a text
    #[arg(long, help_heading = SAMPLING)]
    ignore_eos: bool,
    /// Log-probabilities of each token and of the N likeliest (0 to 20), in the JSON
    #[arg(long, value_name = "N", requires = "json", help_heading = SAMPLING)]
    logprobs: Option<usize>,
    /// Hold the answer to a JSON Schema (- is stdin)
    #[arg(long, value_name = "FILE", conflicts_with = "grammar", help_heading = SAMPLING)]
    json_schema: Option<PathBuf>,
    /// Hold the answer to a grammar, GBNF or Lark (- is stdin)
    #[arg(long, value_name = "FILE", help_heading = SAMPLING)]
    grammar: Option<PathBuf>,
    /// Apply a LoRA adapter: not built yet
    #[arg(long, value_name = "PATH[:SCALE]", help_heading = SAMPLING)]
    lora: Vec<String>,
}

const SAMPLING: &str = "Sampling";

impl SamplingArgs {
    /// The parameters for a model.
    ///
    /// # Errors
    /// What is out of range, or not built.
    pub(crate) fn params(&self, model: &LanguageModel, terminal: &Terminal) -> Result<SamplingParams, CliError> {
        self.check()?;
        let defaults = model.defaults();
        if !defaults.not_built.is_empty() {
            let options = defaults.not_built.join(", ");
            terminal.note(format!("generation_config.json sets {options}, which is not built: it has no effect"));
        }
        let params = self.over(defaults.params());
        params.check().map_err(inference::InferenceError::from)?;
        Ok(params)
    }

    /// Refuses what is not built, before a model is opened.
    pub(crate) fn check(&self) -> Result<(), CliError> {
        match self.lora.is_empty() {
            true => Ok(()),
            false => Err(CliError::FlagNotBuilt { flag: "--lora" }),
        }
    }

    /// Refuses what every request says for itself.
    pub(crate) fn check_default(&self) -> Result<(), CliError> {
        let flags = [
            (self.json_schema.is_some(), "--json-schema"),
            (self.grammar.is_some(), "--grammar"),
            (self.logprobs.is_some(), "--logprobs"),
        ];
        match flags.into_iter().find(|(given, _)| *given) {
            Some((_, flag)) => Err(CliError::OfRequests { flag }),
            None => self.check(),
        }
    }

    /// What the answer is held to.
    ///
    /// # Errors
    /// A file that cannot be read, or a schema that is not JSON.
    pub(crate) fn spec(&self) -> Result<Option<GrammarSpec>, CliError> {
        if let Some(path) = &self.json_schema {
            let not = |error| CliError::NotJson { path: path.clone(), error };
            return Ok(Some(GrammarSpec::JsonSchema(serde_json::from_str(&read_text(path)?).map_err(not)?)));
        }
        self.grammar.as_deref().map(|path| Ok(GrammarSpec::guess(read_text(path)?))).transpose()
    }

    /// These flags over what is there already.
    pub(crate) fn over(&self, base: SamplingParams) -> SamplingParams {
        SamplingParams {
            max_tokens: self.max_tokens.or(base.max_tokens),
            temperature: self.temperature.unwrap_or(base.temperature),
            top_k: self.top_k.unwrap_or(base.top_k),
            top_p: self.top_p.unwrap_or(base.top_p),
            min_p: self.min_p.unwrap_or(base.min_p),
            typical_p: self.typical_p.unwrap_or(base.typical_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(base.repetition_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(base.presence_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(base.frequency_penalty),
            seed: self.seed,
            stop: self.stop.clone(),
            logit_bias: self.logit_bias.clone(),
            ignore_eos: self.ignore_eos,
            logprobs: self.logprobs,
            stop_ids: base.stop_ids,
        }
    }
}

fn bias(text: &str) -> Result<(u32, f32), String> {
    let parse = |(id, bias): (&str, &str)| Some((id.trim().parse().ok()?, bias.trim().parse().ok()?));
    text.split_once('=').and_then(parse).ok_or_else(|| "expected ID=BIAS, as in 42=-5 or 42=-inf".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_goes_over_the_model_and_the_model_over_nothing() {
        let base = SamplingParams { temperature: 0.6, top_k: 20, max_tokens: Some(9), ..Default::default() };
        let args = SamplingArgs { temperature: Some(0.0), stop: vec!["x".into()], ..Default::default() };
        let params = args.over(base);
        assert_eq!((params.temperature, params.top_k, params.max_tokens), (0.0, 20, Some(9)));
        assert_eq!(params.stop, ["x"]);
    }

    #[test]
    fn a_bias_is_an_id_and_a_number() {
        assert_eq!(bias("42=-5").unwrap(), (42, -5.0));
        assert_eq!(bias("0=-inf").unwrap(), (0, f32::NEG_INFINITY));
        for wrong in ["42", "=1", "the=1", "-1=2", "42=x"] {
            assert!(bias(wrong).is_err(), "{wrong}");
        }
    }
}
