//! How does the command talk to a person? Progress bars where stderr is a terminal, plain lines where it is a pipe, nothing
//! with `--quiet`; results on a buffered stdout.

use hub::{Event, Progress};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, BufWriter, IsTerminal, StdoutLock};
use std::time::{Duration, Instant};

/// Stdout and stderr, as the user wants them.
pub(crate) struct Terminal {
    quiet: bool,
    verbose: bool,
    stderr: bool,
    stdout: bool,
}

/// Seconds between the lines that stand in for a bar in a pipe.
const LINE_EVERY: Duration = Duration::from_secs(10);

impl Terminal {
    /// Also starts the log: warnings (of a server also its requests), with `-v` what Lattice does, with `-vv` everything.
    pub(crate) fn new(quiet: bool, verbose: u8, serves: bool) -> Terminal {
        let (stderr, stdout) = (io::stderr().is_terminal(), io::stdout().is_terminal());
        let filter = match (quiet, verbose) {
            (true, _) => "error",
            (_, 0) if serves => "warn,lattice=info",
            (_, 0) => "warn",
            (_, 1) => "warn,lattice=debug",
            _ => "trace",
        };
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(stderr).init();
        Terminal { quiet, verbose: verbose > 0, stderr, stdout }
    }

    /// Where results go.
    pub(crate) fn out(&self) -> BufWriter<StdoutLock<'static>> {
        BufWriter::with_capacity(64 << 10, io::stdout().lock())
    }

    /// Whether a person reads the results.
    pub(crate) fn out_is_terminal(&self) -> bool {
        self.stdout
    }

    /// Whether a bar would be seen.
    pub(crate) fn shows_bars(&self) -> bool {
        self.stderr && !self.quiet
    }

    /// A line about what was decided or left out.
    pub(crate) fn note(&self, text: impl std::fmt::Display) {
        if !self.quiet {
            eprintln!("note: {text}");
        }
    }

    /// A line for those who ask for more.
    pub(crate) fn detail(&self, text: impl std::fmt::Display) {
        if self.verbose {
            eprintln!("{text}");
        }
    }

    /// The line that a failed command ends with.
    pub(crate) fn error(&self, error: &dyn std::fmt::Display) {
        let colour = self.stderr && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        let (on, off) = if colour { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
        eprintln!("{on}error:{off} {error}");
    }

    /// Hears a download.
    pub(crate) fn downloads(&self) -> Downloads<'_> {
        Downloads { terminal: self, bar: None }
    }

    /// A count that goes up to `total`, or nobody knows how far.
    pub(crate) fn count(&self, what: &'static str, total: Option<u64>) -> Count {
        let bar = match (self.shows_bars(), total) {
            (false, _) => ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden()),
            (true, Some(total)) => ProgressBar::new(total)
                .with_style(style("{msg} {wide_bar} {human_pos}/{human_len} ({per_sec}, {eta} left)")),
            (true, None) => ProgressBar::no_length().with_style(style("{spinner} {human_pos} {msg} ({per_sec})")),
        };
        bar.set_message(what);
        Count { bar, what, lines: !self.quiet && !self.stderr, last: Instant::now() }
    }
}

/// A count of things done.
pub(crate) struct Count {
    bar: ProgressBar,
    what: &'static str,
    lines: bool,
    last: Instant,
}

impl Count {
    /// Tells something else beside the bar.
    pub(crate) fn say(&self, what: String) {
        self.bar.set_message(what);
    }

    /// One more.
    pub(crate) fn one(&mut self) {
        self.bar.inc(1);
        if self.lines && self.last.elapsed() >= LINE_EVERY {
            self.last = Instant::now();
            eprintln!("{} {}", self.bar.position(), self.what);
        }
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A listener to the hub.
pub(crate) struct Downloads<'a> {
    terminal: &'a Terminal,
    bar: Option<ProgressBar>,
}

impl Downloads<'_> {
    fn line(&self, text: String) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }
}

impl Progress for Downloads<'_> {
    fn on(&mut self, event: &Event<'_>) {
        if self.terminal.quiet {
            return;
        }
        match event {
            Event::Waiting { lock } => self.line(format!("another process fetches it; waiting for {}", lock.display())),
            Event::Trying { model, source } => self.line(format!("fetching {model} from {source}")),
            Event::Failed { error, .. } => {
                self.bar = None;
                self.line(format!("  that failed: {error}"));
            }
            Event::Started { file, done, total } if self.terminal.shows_bars() => {
                let bar = match total {
                    Some(total) => ProgressBar::new(*total).with_style(style(
                        "  {msg} {wide_bar} {binary_bytes}/{binary_total_bytes} ({binary_bytes_per_sec}, {eta} left)",
                    )),
                    None => ProgressBar::no_length()
                        .with_style(style("  {msg} {spinner} {binary_bytes} ({binary_bytes_per_sec})")),
                };
                bar.set_message((*file).to_owned());
                bar.set_position(*done);
                self.bar = Some(bar);
            }
            Event::Advanced { done, .. } => {
                if let Some(bar) = &self.bar {
                    bar.set_position(*done);
                }
            }
            Event::Retrying { file, error, pause } => {
                self.line(format!("  {file}: {error}; again in {} s", pause.as_secs_f32()));
            }
            Event::Finished { file, bytes } => {
                if let Some(bar) = self.bar.take() {
                    bar.finish_and_clear();
                }
                self.line(format!("  {file} ({})", size(*bytes)));
            }
            _ => {}
        }
    }
}

impl Drop for Downloads<'_> {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("templates are constants").progress_chars("━╸ ")
}

/// Bytes for people.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (0..UNITS.len()).rev().find(|u| bytes >> (10 * u) > 0).unwrap_or(0);
    match unit {
        0 => format!("{bytes} B"),
        _ => format!("{:.1} {}", bytes as f64 / (1u64 << (10 * unit)) as f64, UNITS[unit]),
    }
}

/// Rows with aligned columns; the first row is the head. Columns of `right` are set flush right.
pub(crate) fn table(rows: &[Vec<String>], right: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |row: &Vec<String>, c: usize| row.get(c).map_or(0, |cell| width(cell));
    let widths: Vec<usize> = (0..columns).map(|c| rows.iter().map(|row| cell(row, c)).max().unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (c, cell) in row.iter().enumerate() {
            let gap = " ".repeat(widths[c] - width(cell));
            let (before, after) = if right.contains(&c) { (gap, String::new()) } else { (String::new(), gap) };
            line += &format!("{before}{cell}{after}  ");
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// A text in one line of at most `columns` columns.
pub(crate) fn label(text: &str, columns: usize) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if width(&line) <= columns {
        return line;
    }
    let mut short = String::new();
    for c in line.chars() {
        if width(&short) + width(c.encode_utf8(&mut [0; 4])) >= columns {
            break;
        }
        short.push(c);
    }
    short.trim_end().to_owned() + "…"
}

fn width(text: &str) -> usize {
    unicode_width::UnicodeWidthStr::width(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_the_unit_that_fits() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(90_868_376), "86.7 MiB");
    }

    #[test]
    fn columns_are_aligned_by_width_not_by_bytes() {
        let rows = [vec!["猫".to_owned(), "1".to_owned()], vec!["cats".to_owned(), "22".to_owned()]];
        assert_eq!(table(&rows, &[1]), "猫     1\ncats  22\n");
    }

    #[test]
    fn labels_are_one_short_line() {
        assert_eq!(label("a\nb", 10), "a b");
        assert_eq!(label("A cat sits on the mat", 10), "A cat sit…");
        assert_eq!(label("猫猫猫猫", 5), "猫猫…");
    }
}
