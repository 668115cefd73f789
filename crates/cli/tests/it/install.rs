//! Completions and manual of the installed program, and colours: only where a person looks.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::program::tollgate;

/// The verbs, as `--help` lists them.
fn verbs() -> Vec<String> {
    let help = tollgate(Path::new("."), &["--help"]);
    let (_, list) = help.words().split_once("Commands:\n").unwrap();
    let lines = list.lines().take_while(|line| line.starts_with("  "));
    // Further lines of a text stand further to the right.
    let lines = lines.filter(|line| !line.starts_with("   "));
    let verbs = lines.map(|line| line.split_whitespace().next().unwrap().to_owned());
    let verbs: Vec<_> = verbs.filter(|verb| verb != "help").collect();
    assert!(verbs.len() >= 14, "{verbs:?}");
    verbs
}

#[test]
fn each_verb_has_an_example_in_its_help_which_is_a_call_of_that_verb() {
    for verb in verbs() {
        let help = tollgate(Path::new("."), &[&verb, "--help"]);
        let (_, examples) = help.words().split_once("\nExample").unwrap();
        assert!(
            examples.contains(&format!("tollgate {verb} ")),
            "{verb}: {examples}"
        );
    }
}

/// A disk that is full.
#[test]
#[cfg(target_os = "linux")]
fn a_report_that_cannot_be_written_is_told() {
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let ran = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["completions", "bash"])
        .stdout(full)
        .output()
        .unwrap();

    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    assert_eq!(
        String::from_utf8_lossy(&ran.stderr),
        "error: the standard output: No space left on device (os error 28)\n"
    );
}

#[test]
fn completions_of_each_shell_know_each_verb_and_its_options() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = tollgate(Path::new("."), &["completions", shell]);
        for verb in verbs() {
            assert!(ran.words().contains(&verb), "{shell}: {verb}");
        }
        for option in ["against", "sentinel", "dry-run"] {
            assert!(ran.words().contains(option), "{shell}: {option}");
        }
    }
}

/// Bash itself completes a verb.
#[test]
fn bash_takes_the_completions_and_completes_a_verb() {
    let folder = tempfile::tempdir().unwrap();
    let ran = tollgate(folder.path(), &["completions", "bash"]);
    fs::write(folder.path().join("tollgate.bash"), ran.words()).unwrap();
    let script = "source ./tollgate.bash; COMP_WORDS=(tollgate doc); COMP_CWORD=1; \
        _tollgate tollgate doc tollgate; echo \"${COMPREPLY[@]}\"";
    let bash = Command::new("bash");
    let output = { bash }
        .args(["-c", script])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "doctor\n",
        "{output:?}"
    );
}

#[test]
fn the_manual_has_a_page_for_the_program_and_for_each_verb() {
    let folder = tempfile::tempdir().unwrap();

    let page = tollgate(folder.path(), &["man"]);
    let all = tollgate(folder.path(), &["man", "--out", "."]);

    assert!(page.words().contains(".TH TOLLGATE 1"), "{page:?}");
    for verb in verbs() {
        let file = format!("tollgate-{verb}.1");
        assert!(all.words().contains(&file), "{all:?}");
        let page = fs::read_to_string(folder.path().join(file)).unwrap();
        assert!(
            page.contains(&format!(".TH TOLLGATE-{} 1", verb.to_uppercase())),
            "{page}"
        );
        assert!(page.contains("Example"), "{page}");
    }
}

/// The program's words on a terminal: `script` gives it one.
fn on_a_terminal(arguments: &str, variable: (&str, &str)) -> String {
    let program = format!("{} {arguments}", env!("CARGO_BIN_EXE_tollgate"));
    let mut script = Command::new("script");
    script.args(["-qec", &program, "/dev/null"]);
    // The last is taken for a page that shows colours whatever the terminal is.
    for name in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"] {
        script.env_remove(name);
    }
    let output = script
        .env("TERM", "xterm")
        .env(variable.0, variable.1)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_long_reading_shows_its_progress_on_a_terminal_and_leaves_nothing_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let line = "192.0.2.1 - - [24/Nov/2026:00:00:00 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"-\"\n";
    fs::write(at("access.log"), line.repeat(20_000)).unwrap();
    fs::write(
        at("limits.toml"),
        "policies = [{ name = \"a\", quotas = \"1/s\" }]",
    )
    .unwrap();
    let (log, limits) = (at("access.log"), at("limits.toml"));
    let arguments = format!("simulate {} {}", log.display(), limits.display());

    let seen = on_a_terminal(&arguments, ("LANG", "C"));
    let dumb = on_a_terminal(&arguments, ("TERM", "dumb"));
    let piped = tollgate(folder.path(), &["simulate", "access.log", "limits.toml"]);

    let (bar, report) = seen.split_once("\r\u{1b}[K").unwrap();
    assert!(
        bar.contains("░") && bar.contains(" %  4,096 lines"),
        "{bar}"
    );
    assert!(report.contains("20,000 requests"), "{report}");
    for plain in [&dumb, &piped.out, &piped.err] {
        assert!(!plain.contains(['░', '\u{1b}']), "{plain}");
    }
}

#[test]
fn colours_stand_on_a_terminal_only_and_not_if_they_are_not_wanted() {
    const ESCAPE: char = '\u{1b}';
    for arguments in ["check nowhere.toml", "check", "--help"] {
        let coloured = on_a_terminal(arguments, ("LANG", "C"));
        assert!(coloured.contains(ESCAPE), "{arguments}: {coloured}");
        for variable in [("NO_COLOR", "1"), ("TERM", "dumb")] {
            let plain = on_a_terminal(arguments, variable);
            assert!(!plain.contains(ESCAPE), "{arguments} {variable:?}: {plain}");
            assert!(
                plain.contains("error") || plain.contains("Usage"),
                "{plain}"
            );
        }
        let words: Vec<_> = arguments.split(' ').collect();
        let piped = tollgate(Path::new("."), &words);
        assert!(
            !piped.out.contains(ESCAPE) && !piped.err.contains(ESCAPE),
            "{piped:?}"
        );
    }
}
