//! What the user sees while the sandbox works: spinners on a terminal, plain lines elsewhere. All of it on standard error, because
//! standard output belongs to the user's COMMAND.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tokio::time::Instant;

use super::board::{Change, Mark};

/// Fast enough to look alive, slow enough to cost nothing.
const SPIN_EVERY: Duration = Duration::from_millis(120);

/// Shows changes as they come.
pub struct Display {
    started: Instant,
    mode: Mode,
}

enum Mode {
    /// One line per change, with the time since the start.
    Lines,
    Spinners {
        all: MultiProgress,
        rows: BTreeMap<String, ProgressBar>,
    },
}

impl Display {
    /// Spinners if a person is looking.
    pub fn new() -> Self {
        let mode = if std::io::stderr().is_terminal() {
            Mode::Spinners {
                all: MultiProgress::new(),
                rows: BTreeMap::new(),
            }
        } else {
            Mode::Lines
        };
        Self {
            started: Instant::now(),
            mode,
        }
    }

    /// A line that stays.
    pub fn say(&self, text: &str) {
        let line = format!("{} {text}", self.elapsed());
        match &self.mode {
            Mode::Lines => eprintln!("{line}"),
            // With no terminal behind it any more there is nobody to tell.
            Mode::Spinners { all, .. } => drop(all.println(line)),
        }
    }

    /// A row that changed.
    pub fn show(&mut self, change: &Change) {
        let elapsed = self.elapsed();
        match &mut self.mode {
            Mode::Lines => eprintln!("{elapsed} {}", line(change)),
            Mode::Spinners { all, rows } => spin(all, rows, change, &elapsed),
        }
    }

    /// From now on only lines: whoever is looking has other things on the screen.
    pub fn settle(&mut self) {
        if let Mode::Spinners { rows, .. } = &self.mode {
            rows.values().for_each(ProgressBar::abandon);
        }
        self.mode = Mode::Lines;
    }

    fn elapsed(&self) -> String {
        format!("[{:6.1}s]", self.started.elapsed().as_secs_f64())
    }
}

fn line(change: &Change) -> String {
    format!("{}: {}", change.title, change.text)
}

fn spin(
    all: &MultiProgress,
    rows: &mut BTreeMap<String, ProgressBar>,
    change: &Change,
    elapsed: &str,
) {
    let row = rows
        .entry(change.title.clone())
        .or_insert_with(|| new_row(all));
    let symbol = match change.mark {
        Mark::Working => {
            row.set_style(working_style());
            row.enable_steady_tick(SPIN_EVERY);
            row.set_message(line(change));
            return;
        }
        Mark::Done => "✓",
        Mark::Failed => "✗",
        Mark::Gone => "-",
    };
    // Finished rows stay where they are; one that goes back to work spins again.
    row.disable_steady_tick();
    row.set_style(settled_style());
    row.set_message(format!(
        "{symbol} {} ({})",
        line(change),
        elapsed.trim_matches(['[', ']']).trim_start()
    ));
}

fn new_row(all: &MultiProgress) -> ProgressBar {
    all.add(ProgressBar::new_spinner().with_style(working_style()))
}

fn working_style() -> ProgressStyle {
    // The template is a constant; should indicatif's grammar ever refuse it, its default spinner does as well.
    ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
}

fn settled_style() -> ProgressStyle {
    ProgressStyle::with_template("{wide_msg}").unwrap_or_else(|_| ProgressStyle::default_spinner())
}
