//! `tollgate nginx`: turns a file of limits into the one that nginx applies itself, with its Lua module.
//!
//! Everything that is constant is worked out here: the bytes of charges, the beginnings of names, the numbers of headers. The
//! module in `lua/nginx` fits them together, and applies no rule of its own.

mod bounds;
mod file;

use std::fs;
use std::io::{self, Write as _};
use std::path::PathBuf;

use clap::Args;

use crate::failure::Failure;
use crate::limits::Limits;
use crate::outputs;
use crate::policy_words;

/// Turns a file of limits into the file that Tollgate's Lua module for nginx reads.
///
/// The command fails, and names each policy with the reason, if nginx cannot do what the file asks for. Exit codes: 0 the file is
/// written; 1 a file is invalid, cannot be read or written, or asks for what nginx cannot do; 2 the arguments make no sense.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tollgate nginx limits.toml --output /etc/tollgate/nginx.json && nginx -s reload")]
pub(crate) struct NginxArguments {
    /// The file of limits: TOML, or JSON if its name ends in .json.
    limits: PathBuf,
    /// The file that is written, in place of the standard output.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The beginning of the names of keys, as the services have it.
    #[arg(long, value_name = "PREFIX", default_value = "tollgate", value_parser = read_prefix)]
    prefix: String,
    /// The longest body in which keys are looked for, in bytes. Give services the same limit.
    #[arg(long, value_name = "BYTES", default_value_t = 16 * 1024)]
    body_limit: u32,
    /// Lets requests pass whose path services read in different ways, such as /a//b; otherwise they are answered 400.
    #[arg(long)]
    allow_ambiguous_paths: bool,
}

/// Names of keys hold nothing else in their first part.
fn read_prefix(text: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    match !text.is_empty() && text.chars().all(allowed) {
        true => Ok(text.to_owned()),
        false => Err("has other characters than letters, digits, `-`, `.` and `_`".to_owned()),
    }
}

pub(crate) fn run(asked: &NginxArguments) -> Result<String, Failure> {
    outputs::prepare(asked.output.as_deref(), &[&asked.limits])?;
    let limits = Limits::read(&asked.limits, |_| {}, |builder| builder);
    let limits = limits.map_err(Failure::invalid)?;
    let beyond = bounds::beyond(limits.config());
    if !beyond.is_empty() {
        let text = fs::read_to_string(&asked.limits).unwrap_or_default();
        let lines = beyond.iter().map(|one| format!("\n  {}", one.words(&text)));
        let lines: String = lines.collect();
        let file = asked.limits.display();
        return Err(Failure::invalid(format_args!(
            "{file}: nginx cannot do this, and would be weaker than a service:{lines}"
        )));
    }
    for line in policy_words::avoidable(limits.config()) {
        // Not beside the file, which may go to the standard output.
        let _written = writeln!(io::stderr(), "warning: {line}");
    }
    let written = file::written(&limits, &asked.terms()).map_err(Failure::invalid)?;
    let mut json = serde_json::to_string_pretty(&written).map_err(Failure::invalid)?;
    json.push('\n');
    let Some(output) = &asked.output else {
        return Ok(json);
    };
    outputs::replace(output, &json)?;
    Ok(format!("{}\n", output.display()))
}

impl NginxArguments {
    fn terms(&self) -> file::Terms<'_> {
        file::Terms {
            prefix: &self.prefix,
            body_limit: self.body_limit,
            allow_ambiguous_paths: self.allow_ambiguous_paths,
        }
    }
}
