//! Where do texts come from? Arguments, the lines of a file, or those of stdin, one at a time.

use crate::error::CliError;
use crate::terminal::Terminal;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};

/// Flags of the commands that take texts.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct TextArgs {
    /// Texts; without any, the lines of FILE or of stdin
    #[arg(value_name = "TEXT", conflicts_with = "file")]
    texts: Vec<String>,
    /// Read texts from a file (- is stdin): UTF-8, one a line; an empty line is a text too
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Texts to be read one after another.
pub(crate) enum Texts {
    /// Those of the command line.
    Given(std::vec::IntoIter<String>),
    /// Lines.
    Lines(Lines),
}

/// The lines of a file or of stdin.
pub(crate) struct Lines {
    reader: Box<dyn BufRead>,
    place: String,
    path: PathBuf,
    number: usize,
}

impl TextArgs {
    /// Opens them. Someone who forgot the texts is told what is waited for.
    pub(crate) fn open(self, terminal: &Terminal) -> Result<Texts, CliError> {
        if self.is_given() {
            return Ok(Texts::Given(self.texts.into_iter()));
        }
        let file = self.file.filter(|f| f != Path::new("-"));
        let (reader, place): (Box<dyn BufRead>, _) = match &file {
            Some(path) => {
                let file = File::open(path).map_err(CliError::file("read", path))?;
                (Box::new(BufReader::with_capacity(64 << 10, file)), path.display().to_string())
            }
            None => {
                if io::stdin().is_terminal() {
                    terminal.note("reading texts from the keyboard, one a line; Ctrl-D ends them");
                }
                (Box::new(BufReader::new(io::stdin())), "stdin".to_owned())
            }
        };
        Ok(Texts::Lines(Lines { reader, path: file.unwrap_or_else(|| "stdin".into()), place, number: 0 }))
    }

    /// Whether texts stand on the command line.
    pub(crate) fn is_given(&self) -> bool {
        !self.texts.is_empty()
    }

    /// How many there are, where that can be told beforehand.
    pub(crate) fn count(&self) -> Option<u64> {
        if self.is_given() {
            return Some(self.texts.len() as u64);
        }
        let path = self.file.as_ref().filter(|path| path.is_file())?;
        let mut file = File::open(path).ok()?;
        let (mut lines, mut last, mut buffer) = (0, b'\n', vec![0; 1 << 20]);
        loop {
            match file.read(&mut buffer).ok()? {
                0 => return Some(lines + u64::from(last != b'\n')),
                n => {
                    lines += buffer[..n].iter().filter(|&&b| b == b'\n').count() as u64;
                    last = buffer[n - 1];
                }
            }
        }
    }

    /// What an error about text `index` should name, where that is not obvious.
    pub(crate) fn place(&self, index: usize) -> Option<String> {
        if self.is_given() {
            return None;
        }
        let file = self.file.as_ref().filter(|f| *f != Path::new("-"));
        Some(format!("{}, line {}", file.map_or("stdin".into(), |f| f.display().to_string()), index + 1))
    }
}

impl Texts {
    /// All of them, in memory.
    pub(crate) fn all(self, verb: &'static str) -> Result<Vec<String>, CliError> {
        let texts = self.collect::<Result<Vec<_>, _>>()?;
        if texts.is_empty() { Err(CliError::NoTexts { verb }) } else { Ok(texts) }
    }
}

impl Iterator for Texts {
    type Item = Result<String, CliError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Texts::Given(texts) => texts.next().map(Ok),
            Texts::Lines(lines) => lines.next_line().transpose(),
        }
    }
}

impl Lines {
    fn next_line(&mut self) -> Result<Option<String>, CliError> {
        let mut line = Vec::new();
        if self.reader.read_until(b'\n', &mut line).map_err(CliError::file("read", &self.path))? == 0 {
            return Ok(None);
        }
        self.number += 1;
        if line.last() == Some(&b'\n') {
            line.pop();
            if line.last() == Some(&b'\r') {
                line.pop();
            }
        }
        // Some editors mark a file as UTF-8 by this; it is no part of the text.
        if self.number == 1 && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        let not = |e: std::string::FromUtf8Error| CliError::NotUtf8 {
            place: format!("{}, line {}", self.place, self.number),
            byte: e.utf8_error().valid_up_to() + 1,
        };
        String::from_utf8(line).map(Some).map_err(not)
    }
}

/// The whole of a file (- is stdin), UTF-8.
pub(crate) fn read_text(file: &Path) -> Result<String, CliError> {
    let mut bytes = Vec::new();
    match file == Path::new("-") {
        true => std::io::stdin().lock().read_to_end(&mut bytes).map(drop),
        false => std::fs::read(file).map(|b| bytes = b),
    }
    .map_err(CliError::file("read", file))?;
    let not = |e: std::string::FromUtf8Error| CliError::NotUtf8 {
        place: file.display().to_string(),
        byte: e.utf8_error().valid_up_to() + 1,
    };
    String::from_utf8(bytes).map_err(not)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &'static [u8]) -> Result<Vec<String>, CliError> {
        let reader = Box::new(bytes);
        Texts::Lines(Lines { reader, place: "x.txt".into(), path: "x.txt".into(), number: 0 }).collect()
    }

    #[test]
    fn a_line_is_a_text_and_an_empty_line_is_one_too() {
        assert_eq!(lines(b"a\r\n\nb c\n").unwrap(), ["a", "", "b c"]);
        assert_eq!(lines(b"\xef\xbb\xbfa\nlast").unwrap(), ["a", "last"]);
        assert_eq!(lines(b"").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn bytes_that_are_not_utf8_are_an_error_that_names_the_line() {
        let error = lines(b"fine\ncaf\xe9\n").unwrap_err().to_string();
        assert_eq!(error, "x.txt, line 2 is not UTF-8 (byte 4 of the line): convert the text to UTF-8 first");
    }
}
