//! How far it is.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on a terminal; in a file or a pipe a line for each part.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    pub(crate) fn new(steps: u64) -> Self {
        let target = if std::io::stderr().is_terminal() {
            ProgressDrawTarget::stderr_with_hz(5)
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(Some(steps), target);
        match ProgressStyle::with_template("{bar:40} {pos}/{len} {elapsed} {msg}") {
            Ok(style) => bar.set_style(style),
            Err(_) => bar.tick(),
        }
        Self { bar }
    }

    /// What comes next.
    pub(crate) fn part(&self, what: &str) {
        if self.bar.is_hidden() {
            eprintln!("{:>4} s  {what}", self.bar.elapsed().as_secs());
        }
        self.bar.set_message(what.to_owned());
    }

    pub(crate) fn step(&self) {
        self.bar.inc(1);
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
