//! The program where the system lets it open few files.

use std::fs;
use std::net::SocketAddr;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use crate::serve::http::send;
use crate::serve::program::{PATIENCE, RULES, Told, command, file};
use crate::serve::tls::papers;

/// The program in a shell that allows it so many files, and to ask for so many.
fn program(soft: u32, hard: u32, arguments: &[&str]) -> (Child, Told) {
    let limits = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" \"$@\"");
    let mut program = command("sh")
        .args(["-c", &limits, env!("CARGO_BIN_EXE_tollgate"), "serve"])
        .args(arguments)
        .env("NO_COLOR", "1")
        .spawn()
        .unwrap();
    let told = Told::by(&mut program);
    (program, told)
}

#[test]
fn the_program_asks_for_as_many_files_as_it_is_allowed_and_says_how_many() {
    let folder = tempfile::tempdir().unwrap();
    let file = file(folder.path(), RULES);
    for (soft, hard) in [(256, 1_000), (1_000, 1_000)] {
        let (mut program, mut told) = program(soft, hard, &[&file, "--listen", "127.0.0.1:0"]);
        let line = told.line("files and connections may be open");
        let ends = format!("open_files=\"{hard}\" before=\"{soft}\"");
        assert!(line.ends_with(&ends), "{line}");
        told.line("Envoy may ask");
        let limits = fs::read_to_string(format!("/proc/{}/limits", program.id())).unwrap();
        let limit = limits
            .lines()
            .find(|line| line.starts_with("Max open files"));
        let words: Vec<_> = limit.unwrap().split_whitespace().collect();
        assert_eq!(words[3], hard.to_string(), "{limits}");
        program.kill().unwrap();
        program.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_file_descriptor_files_are_told_to_be_unread_and_the_spell_has_two_lines() {
    const FILES: u32 = 64;

    let folder = tempfile::tempdir().unwrap();
    let file = file(folder.path(), RULES);
    let papers = papers(folder.path());
    let mut arguments = vec![&*file, "--listen", "127.0.0.1:0", "--status", "127.0.0.1:0"];
    arguments.extend(papers.iter().map(String::as_str));
    let (mut program, mut told) = program(FILES, FILES, &arguments);
    let status: SocketAddr = told.address("the status is told");

    // Clients of the status, which is in the clear and has thirty seconds for a head. A whole head holds a connection for longer.
    let mut clients = Vec::new();
    for _ in 0..2 * FILES {
        clients.push(TcpStream::connect(status).await.unwrap());
    }
    let (mut told, lines) = tokio::task::spawn_blocking(move || {
        let lines = [
            "no connection can be accepted",
            "the configuration cannot be read; the one before stays",
            "the files for TLS cannot be read; the certificate before stays",
        ];
        // Each task looks every two seconds, in whichever order.
        let first = told.line(lines[0]);
        let mut left = vec![lines[1], lines[2]];
        while !left.is_empty() {
            let line = told.line("cannot be read; the");
            left.retain(|words| !line.contains(words));
        }
        (told, first)
    })
    .await
    .unwrap();
    assert!(lines.contains("Too many open files"), "{lines}");

    // The file is another one meanwhile, and takes effect once it can be read.
    fs::write(&file, RULES.replace("10/h", "20/h")).unwrap();
    drop(clients);
    let told = tokio::task::spawn_blocking(move || {
        told.line("10/h → 20/h");
        told.line("connections are accepted again failed=");
        told
    });
    let told = tokio::time::timeout(PATIENCE, told).await.unwrap().unwrap();
    let begun = Instant::now();
    while send(status, "GET /readyz", "").await.status != 200 {
        assert!(begun.elapsed() < PATIENCE);
        sleep(Duration::from_millis(20));
    }
    program.kill().unwrap();
    program.wait().unwrap();
    let lines = told.all();
    for (words, count) in [
        ("no connection can be accepted", 1),
        ("connections are accepted again", 1),
        ("the configuration cannot be read", 1),
        ("the configuration can be read again", 1),
        ("the files for TLS cannot be read", 1),
        ("the files for TLS can be read again", 1),
        ("refused", 0),
        ("another one", 0),
    ] {
        let found = lines.iter().filter(|line| line.contains(words)).count();
        assert_eq!(found, count, "{words}: {lines:#?}");
    }
}
