//! Which instruction sets are there, and which one runs? Detection, names, and the choice by `LATTICE_ISA`.

use std::fmt;

/// A level of instructions that kernels are written for, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Isa {
    /// Plain Rust, the oracle of all others.
    Scalar,
    /// x86-64 with AVX2, FMA, F16C and POPCNT.
    Avx2,
    /// x86-64 with AVX-512 F, BW, VL and DQ.
    Avx512,
    /// The same with AMX tiles of bf16, on Linux.
    Amx,
    /// AArch64 with Advanced SIMD.
    Neon,
}

impl Isa {
    /// Every level that this crate knows, lowest first.
    pub const ALL: &[Isa] = &[Isa::Scalar, Isa::Avx2, Isa::Avx512, Isa::Amx, Isa::Neon];

    /// The levels that this machine has, lowest first; the first is always [`Isa::Scalar`].
    pub fn available() -> Vec<Isa> {
        Self::ALL.iter().copied().filter(|isa| isa.is_available()).collect()
    }

    /// Does this machine have it?
    pub fn is_available(self) -> bool {
        match self {
            Isa::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
                    && is_x86_feature_detected!("popcnt")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                Isa::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Amx => Isa::Avx512.is_available() && crate::amx::available(),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            #[allow(unreachable_patterns)]
            _ => false,
        }
    }

    /// The level of this name (`scalar`, `avx2`, `avx512`, `amx`, `neon`), whether the machine has it or not.
    pub fn from_name(name: &str) -> Option<Isa> {
        Self::ALL.iter().copied().find(|isa| isa.name().eq_ignore_ascii_case(name))
    }

    /// Its name, as in `LATTICE_ISA`.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Amx => "amx",
            Isa::Neon => "neon",
        }
    }

    /// The highest level of this machine, or the one that the environment variable `LATTICE_ISA` names.
    ///
    /// # Errors
    /// If `LATTICE_ISA` names a level that does not exist, or one that this machine lacks.
    pub fn choose() -> Result<Isa, Error> {
        match std::env::var_os("LATTICE_ISA") {
            Some(name) if !name.is_empty() => Self::choose_named(&name.to_string_lossy()),
            _ => Ok(*Self::available().last().expect("scalar is everywhere")),
        }
    }

    fn choose_named(name: &str) -> Result<Isa, Error> {
        match Isa::from_name(name) {
            None => Err(Error::UnknownIsa { name: name.to_owned() }),
            Some(isa) if !isa.is_available() => Err(Error::AbsentIsa { isa }),
            Some(isa) => Ok(isa),
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the environment can ask of the kernels in vain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// `LATTICE_ISA` is no level's name.
    UnknownIsa {
        /// What it said.
        name: String,
    },
    /// `LATTICE_ISA` names a level that this machine lacks.
    AbsentIsa {
        /// The level asked for.
        isa: Isa,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::UnknownIsa { name } => write!(f, "LATTICE_ISA={name} is no instruction set of Lattice")?,
            Error::AbsentIsa { isa } => write!(f, "LATTICE_ISA={isa} asks for instructions that this machine lacks")?,
        }
        let available: Vec<_> = Isa::available().iter().map(|isa| isa.name()).collect();
        write!(f, "; here it can be {}, or left unset for the last of these", available.join(", "))
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_level() {
        for &isa in Isa::ALL {
            assert_eq!(Isa::from_name(isa.name()), Some(isa));
        }
        assert_eq!(Isa::from_name("AVX2"), Some(Isa::Avx2));
        assert_eq!(Isa::available()[0], Isa::Scalar);
    }

    #[test]
    fn an_unknown_or_absent_level_is_an_error_that_names_the_available_ones() {
        let unknown = Isa::choose_named("sse9").unwrap_err().to_string();
        assert!(
            unknown.starts_with("LATTICE_ISA=sse9 is no instruction set of Lattice; here it can be scalar"),
            "{unknown}"
        );
        let absent = if cfg!(target_arch = "x86_64") { "neon" } else { "avx2" };
        let absent = Isa::choose_named(absent).unwrap_err().to_string();
        assert!(absent.contains("asks for instructions that this machine lacks; here it can be scalar"), "{absent}");
    }
}
