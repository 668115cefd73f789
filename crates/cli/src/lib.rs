//! The program `tollgate`: it checks a configuration of limits, replays access logs through it, and looks into running fleets.
//!
//! | verb | what it does |
//! | --- | --- |
//! | `tollgate check limits.toml` | says whether the file is valid, what it covers, and what a change of it means for callers |
//! | `tollgate explain limits.toml --request 'GET /'` | says which policies cover a request, whose budgets it spends, and its answer |
//! | `tollgate simulate access.log limits.toml` | replays a log on its own time: which requests, callers and routes would be refused |
//! | `tollgate suggest access.log` | finds limits that refuse no more than a stated share of the callers of a log |
//! | `tollgate inspect POLICY KEY` | shows the budgets, the ban and the holdings of one caller in a fleet |
//! | `tollgate top`, `keys`, `banned` | list the callers of a policy that have a budget in use, or a ban |
//! | `tollgate reset`, `ban`, `unban` | change the budgets or the ban of one caller in a fleet |
//! | `tollgate doctor` | examines the fleet's Redis: what is set, what it means for limits, and what to change |
//! | `tollgate serve gateway.toml` | answers Envoy, nginx, Caddy and Traefik with the budgets of the file |
//! | `tollgate nginx limits.toml` | turns the file into the one by which nginx limits requests itself |
//! | `tollgate completions`, `man` | write completions for a shell, and the manual |
//!
//! It reads files by the library's own configuration and decides by the library's own limiter, so that nothing is decided twice.
//! [docs/program.md] is the page for its users. Its functions are not an interface for other programs: they may change with any
//! version.
//!
//! [docs/program.md]: https://github.com/tollgate-rs/tollgate/blob/main/docs/program.md

mod arguments;
mod check;
mod colour;
mod coverage;
mod doctor;
mod explain;
mod failure;
mod figures;
mod fleet;
mod install;
mod limits;
mod log;
mod method;
mod nginx;
mod outputs;
mod peer;
mod picture;
mod policy_words;
mod recorder;
mod redis;
mod replay;
mod report;
mod secrets;
mod serve;
mod simulate;
mod suggest;
mod timeline;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use self::arguments::{Arguments, Verb};
use self::colour::Colour;
use self::failure::Failure;
use self::report::Report;

/// Runs the program with these arguments, the first of which is its name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<_> = arguments.into_iter().collect();
    let secrets = secrets::of(&arguments);
    let outcome = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => run_verb(arguments.verb),
        Err(help)
            if matches!(
                help.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            ) =>
        {
            // A reader that stops early, such as `head`, is not a failure.
            drop(help.print());
            return ExitCode::SUCCESS;
        }
        Err(usage) => {
            // The words of the arguments stand in it, and so does a URL in the wrong place.
            let words = usage.render();
            let words = match colour::is_wanted(&io::stderr()) {
                true => words.ansi().to_string(),
                false => words.to_string(),
            };
            drop(io::stderr().write_all(secrets::hide(&words, &secrets).as_bytes()));
            return ExitCode::from(failure::USAGE);
        }
    };
    match outcome {
        Ok(report) => match io::stdout().write_all(report.text.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                let unwritten = Failure::invalid(format_args!("the standard output: {error}"));
                tell(&unwritten, &secrets)
            }
            _ => ExitCode::from(report.code),
        },
        Err(failure) => tell(&failure, &secrets),
    }
}

/// Says why there is no result.
fn tell(failure: &Failure, secrets: &[String]) -> ExitCode {
    let words = secrets::hide(&failure.to_string(), secrets);
    let error = match colour::is_wanted(&io::stderr()) {
        true => colour::paint("error:", Colour::Red),
        false => "error:".to_owned(),
    };
    drop(writeln!(io::stderr(), "{error} {words}"));
    ExitCode::from(failure.code())
}

fn run_verb(verb: Verb) -> Result<Report, Failure> {
    let text = match verb {
        Verb::Doctor(asked) => return doctor::doctor(&asked),
        Verb::Check(asked) => check::run(&asked),
        Verb::Explain(asked) => explain::run(&asked),
        Verb::Simulate(asked) => simulate::run(&asked),
        Verb::Suggest(asked) => suggest::run(&asked),
        Verb::Inspect(asked) => fleet::inspect(&asked),
        Verb::Top(asked) => fleet::top(&asked),
        Verb::Keys(asked) => fleet::keys(&asked),
        Verb::Banned(asked) => fleet::banned(&asked),
        Verb::Ban(asked) => fleet::ban(&asked),
        Verb::Unban(asked) => fleet::unban(&asked),
        Verb::Reset(asked) => fleet::reset(&asked),
        Verb::Serve(asked) => serve::run(&asked),
        Verb::Nginx(asked) => nginx::run(&asked),
        Verb::Completions(asked) => Ok(install::completions(&asked, Arguments::command())),
        Verb::Man(asked) => install::man(&asked, Arguments::command()),
    };
    text.map(Report::from)
}
