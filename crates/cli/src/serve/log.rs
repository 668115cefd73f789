//! The log of the server, on the standard error.

use std::io;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

use crate::colour;

/// The variable that says what is logged.
const FILTER: &str = "RUST_LOG";

/// The form of the log.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(super) enum LogForm {
    /// A line for people.
    #[default]
    Text,
    /// An object of JSON in each line.
    Json,
}

/// Logs from now on.
pub(super) fn begin(form: LogForm) {
    let (filter, fault) = filter();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(colour::is_wanted(&io::stderr()))
        .with_writer(io::stderr);
    match form {
        LogForm::Text => log.init(),
        LogForm::Json => log.json().init(),
    }
    if let Some(error) = fault {
        tracing::warn!(
            error,
            "RUST_LOG makes no sense, and does not count: info and all above it is logged"
        );
    }
}

/// The filter, and the reason why it is not that of the environment.
fn filter() -> (EnvFilter, Option<String>) {
    let info = || EnvFilter::new("info");
    let Some(stated) = std::env::var_os(FILTER).filter(|stated| !stated.is_empty()) else {
        return (info(), None);
    };
    let Some(stated) = stated.to_str() else {
        return (info(), Some("it is not a text".to_owned()));
    };
    match EnvFilter::try_new(stated) {
        Ok(filter) => (filter, None),
        Err(error) => (info(), Some(error.to_string())),
    }
}
