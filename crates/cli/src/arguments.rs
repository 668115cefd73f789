//! The arguments of the program, and its help.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::doctor::DoctorArguments;
use crate::figures::{Share, read_period};
use crate::fleet::{
    BanArguments, BannedArguments, InspectArguments, KeysArguments, ResetArguments, TopArguments,
    UnbanArguments,
};
use crate::install::{CompletionsArguments, ManArguments};
use crate::log::{FieldNames, Format, Terms};
use crate::nginx::NginxArguments;
use crate::peer::Peer;
use crate::redis::RedisArguments;
use crate::serve::ServeArguments;

/// Chooses and checks the limits of a service that Tollgate protects, and looks into a running fleet.
#[derive(Debug, Parser)]
#[command(name = "tollgate", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Check(CheckArguments),
    Explain(ExplainArguments),
    Simulate(SimulateArguments),
    Suggest(SuggestArguments),
    Inspect(InspectArguments),
    Top(TopArguments),
    Keys(KeysArguments),
    Banned(BannedArguments),
    Ban(BanArguments),
    Unban(UnbanArguments),
    Reset(ResetArguments),
    Doctor(DoctorArguments),
    Serve(ServeArguments),
    Nginx(NginxArguments),
    Completions(CompletionsArguments),
    Man(ManArguments),
}

/// Says whether a file of limits is valid, what it covers, and what a change means for callers.
///
/// Exit codes: 0 the file is valid, changed or not; 1 a file is invalid or cannot be read; 2 the arguments make no sense.
#[derive(Debug, Args)]
#[command(after_help = "\
Example, for a pipeline that deploys limits.toml:
  git show main:limits.toml > old.toml
  tollgate check limits.toml --against old.toml")]
pub(crate) struct CheckArguments {
    /// The file of limits: TOML, or JSON if its name ends in .json.
    pub(crate) limits: PathBuf,
    /// The file that is in use: says what changes for callers if LIMITS replaces it.
    #[arg(long, value_name = "OLD")]
    pub(crate) against: Option<PathBuf>,
    /// Writes the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Says which policies cover a request and why the others do not, whose budgets it spends, and which answer it gets.
///
/// The library's own layer decides the request, in this process: by full budgets, or with --redis by the fleet's budgets as they
/// are, which are only probed. Nothing is charged. Exit codes: 0 the request is explained; 1 a file is invalid, or the fleet's
/// Redis cannot be asked; 2 the arguments make no sense.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate explain limits.toml --request 'GET /api/things' -H 'x-api-key: abc' --peer 192.0.2.7
  tollgate explain limits.toml --request 'POST /login' --peer 192.0.2.7 --redis redis://10.0.0.7:6379")]
pub(crate) struct ExplainArguments {
    /// The file of limits: TOML, or JSON if its name ends in .json.
    pub(crate) limits: PathBuf,
    /// The method and the target of the request.
    #[arg(long, value_name = "REQUEST")]
    pub(crate) request: String,
    /// A header of the request. May be given several times.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE")]
    pub(crate) headers: Vec<String>,
    /// The address of the other end of the socket: the caller, or the last proxy.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) peer: Option<Peer>,
    /// The cost that the service would find, under policies whose cost only the service knows.
    #[arg(long, value_name = "UNITS", default_value_t = 1)]
    pub(crate) cost: u64,
    /// Writes the explanation as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) redis: RedisArguments,
}

/// Replays an access log through a file of limits, on the log's own time, and says which requests would be refused.
///
/// Nothing is sent and nothing is limited: the library's limiter decides in this process. Exit codes: 0 the log was replayed; 1 a
/// file is invalid or cannot be read; 2 the arguments make no sense.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate simulate access.log limits.toml
  zcat access.log.*.gz | tollgate simulate - limits.toml --reorder 2s
  tollgate simulate access.log limits.toml --html report.html
  tollgate simulate access.log new.toml --against limits.toml --json")]
pub(crate) struct SimulateArguments {
    /// The log: plain, gzip or zstd; - is standard input.
    pub(crate) log: PathBuf,
    /// The file of limits: TOML, or JSON if its name ends in .json.
    pub(crate) limits: PathBuf,
    /// Another file of limits: says which requests would be decided otherwise by it.
    #[arg(long, value_name = "OLD")]
    pub(crate) against: Option<PathBuf>,
    /// Leaves a policy out. May be given several times.
    #[arg(long, value_name = "POLICY")]
    pub(crate) without: Vec<String>,
    /// Writes the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Writes the decision about each request into a file: the line's number, and `pass` or `refuse` with the policy.
    #[arg(long, value_name = "FILE")]
    pub(crate) decisions: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) pictures: PictureArguments,
    #[command(flatten)]
    pub(crate) reading: ReadingArguments,
}

/// Finds limits that would have refused no more than a stated share of the callers of an access log, or of its requests.
///
/// For each caller and 30 rates it finds the least burst that refuses none of the caller's requests. Half of the callers serve to
/// find the limits, and the other half to check them. Exit codes: 0 limits were found; 1 the log cannot be read; 2 the arguments
/// make no sense.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tollgate suggest access.log --refuse 0.1%
  tollgate suggest app.json.log --key header:x-api-key --path '/api/{*path}'
  tollgate suggest access.log --refuse 1% --of requests --html report.html
  tollgate suggest access.log --path /login --method POST --json")]
pub(crate) struct SuggestArguments {
    /// The log: plain, gzip or zstd; - is standard input, which is read once, so that requests are not counted.
    pub(crate) log: PathBuf,
    /// The part of a request that tells callers apart: ip, user or header:NAME.
    #[arg(long, default_value = "ip")]
    pub(crate) key: Identify,
    /// The share of callers that may be refused at any time, or of requests.
    #[arg(long, value_name = "SHARE", default_value = "0.1%")]
    pub(crate) refuse: Share,
    /// The whole of that share. By requests the log is read some ten times.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) of: Counted,
    /// Counts the units that requests cost, as the log has them, in place of the requests: a limit on tokens or bytes.
    #[arg(long)]
    pub(crate) costs: bool,
    /// Looks only at these paths, in axum's syntax. May be given several times.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) path: Vec<String>,
    /// Looks only at requests of these methods. May be given several times.
    #[arg(long)]
    pub(crate) method: Vec<String>,
    /// Writes the report as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) pictures: PictureArguments,
    #[command(flatten)]
    pub(crate) reading: ReadingArguments,
}

/// The whole of a share that may be refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Counted {
    #[default]
    Callers,
    Requests,
}

impl Counted {
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Callers => "callers",
            Self::Requests => "requests",
        }
    }
}

/// The part of a request that tells callers apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identify {
    Ip,
    User,
    Header(String),
}

impl FromStr for Identify {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "ip" => Ok(Self::Ip),
            "user" => Ok(Self::User),
            _ => match text.strip_prefix("header:") {
                Some(name) if !name.is_empty() => Ok(Self::Header(name.to_ascii_lowercase())),
                _ => Err(format!("{text:?} is not one of ip, user and header:NAME")),
            },
        }
    }
}

/// The pictures of a report.
#[derive(Debug, Args)]
#[command(next_help_heading = "Pictures")]
pub(crate) struct PictureArguments {
    /// Draws the charts of the report into this file, as SVG.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Writes the report with its charts into this file: one page that opens in a browser without a network.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

impl PictureArguments {
    /// The files that are written.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        [&self.plot, &self.html]
            .into_iter()
            .filter_map(Option::as_deref)
    }
}

/// The arguments of every verb that reads a log.
#[derive(Debug, Args)]
#[command(next_help_heading = "Reading the log")]
pub(crate) struct ReadingArguments {
    /// The format of the log; its first line says it otherwise.
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// Names a field of a JSON log, such as address=clientIp or header:x-api-key=apiKey. May be given several times.
    #[arg(long, value_name = "PART=NAME")]
    field: Vec<String>,
    /// Goes on up to this share of lines that cannot be read.
    #[arg(long, value_name = "SHARE", default_value = "1%")]
    garbled: Share,
    /// Sorts lines that are late by up to this time.
    #[arg(long, value_name = "PERIOD", default_value = "0", value_parser = read_period)]
    reorder: Duration,
}

impl ReadingArguments {
    /// The terms on which the log is read.
    pub(crate) fn terms(&self) -> Result<Terms, String> {
        Ok(Terms {
            format: self.format,
            names: FieldNames::read(&self.field)?,
            from_beginnings: false,
            garbled: self.garbled,
            reorder: self.reorder,
        })
    }
}
