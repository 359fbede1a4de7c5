//! Which device computes, and how exactly? The only place of the project that picks one.

use crate::error::CliError;
use clap::ValueEnum;
use ops::{Cpu, CpuOptions, Isa, KvFormat, Ops, Precision};
use std::sync::Arc;

/// Flags of the commands that compute.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct ExecutorArgs {
    /// What computes; auto is a GPU where the build has one, else the CPU
    #[arg(long, value_enum, default_value_t = Device::Auto, help_heading = "Computing")]
    device: Device,
    /// Worker threads; without it one for each core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = "Computing")]
    threads: Option<u16>,
    /// Instruction set, at most what this machine has; also LATTICE_ISA
    #[arg(long, value_name = "NAME", value_parser = parse_isa, help_heading = "Computing")]
    isa: Option<Isa>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Device {
    Auto,
    Cpu,
    Gpu,
}

/// How exact the arithmetic is.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct PrecisionArgs {
    /// How exact the arithmetic is: exact is float32 on exactly decoded weights; default rounds a language model's keys and
    /// values to half precision, and activations beside quantized weights to 8 bits; fast rounds weights and activations, too,
    /// to bfloat16 where there are matrix units (AMX, or BF16 of AArch64) and to 8 bits elsewhere
    #[arg(long, value_enum, default_value_t = Level::Default, help_heading = "Computing")]
    precision: Level,
    /// How a language model's keys and values are stored, if not as the precision says
    #[arg(long, value_enum, help_heading = "Computing")]
    kv: Option<Kv>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kv {
    F32,
    F16,
    #[value(name = "q8_0")]
    Q8_0,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Level {
    Exact,
    Default,
    Fast,
}

impl ExecutorArgs {
    /// Starts the executor.
    pub(crate) fn open(&self, precision: Precision) -> Result<Arc<dyn Ops>, CliError> {
        Ok(Arc::new(self.cpu(precision)?))
    }

    /// Starts the executor, where what it runs on is to be told.
    pub(crate) fn cpu(&self, precision: Precision) -> Result<Cpu, CliError> {
        if let Device::Gpu = self.device {
            return Err(CliError::NoGpu);
        }
        let cpu = Cpu::new(&CpuOptions { threads: self.threads.map(usize::from), isa: self.isa, precision })?;
        tracing::info!(isa = %cpu.isa(), threads = cpu.threads(), "computing on the CPU");
        Ok(cpu)
    }
}

impl PrecisionArgs {
    /// What the executor is asked for.
    pub(crate) fn level(&self) -> Precision {
        match self.precision {
            Level::Exact => Precision::Exact,
            Level::Default => Precision::Default,
            Level::Fast => Precision::Fast,
        }
    }

    /// How a language model keeps keys and values.
    pub(crate) fn kv(&self) -> KvFormat {
        match (self.kv, self.precision) {
            (Some(Kv::F32), _) | (None, Level::Exact) => KvFormat::F32,
            (Some(Kv::F16), _) | (None, Level::Default | Level::Fast) => KvFormat::F16,
            (Some(Kv::Q8_0), _) => KvFormat::Q8_0,
        }
    }
}

fn parse_isa(name: &str) -> Result<Isa, String> {
    let known = || Isa::ALL.iter().map(|isa| isa.name()).collect::<Vec<_>>().join(", ");
    Isa::from_name(name).ok_or_else(|| format!("known are {}", known()))
}
