//! The systemd unit and the container file, as far as they can be tried without systemd as the first process and without a
//! container engine.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::serve::http::send;
use crate::serve::program::{PATIENCE, RULES, signal};

const UNIT: &str = include_str!("../../../deploy/tollgate.service");
const CONTAINER: &str = include_str!("../../../deploy/Containerfile");
const PAGE: &str = include_str!("../../../deploy/README.md");
const IGNORED: &str = include_str!("../../../../../.dockerignore");

const PROGRAM: &str = env!("CARGO_BIN_EXE_tollgate");

/// The greatest exposure that the unit may have, of 100 by the measure of systemd. The network alone counts 5 of them.
const EXPOSURE: u32 = 15;

/// The value of a setting of the unit.
fn setting(name: &str) -> &'static str {
    let mut lines = UNIT.lines();
    let value = lines.find_map(|line| line.strip_prefix(&format!("{name}=")));
    value.unwrap_or_else(|| panic!("the unit has no {name}"))
}

fn run(program: &str, arguments: &[&str], install: &str) -> (bool, String) {
    let ran = Command::new(program).args(arguments).output();
    let ran = ran.unwrap_or_else(|error| panic!("{program}: {error}: {install}"));
    let said = [ran.stdout, ran.stderr].concat();
    (
        ran.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

#[test]
fn systemd_takes_the_unit_and_finds_it_locked_up() {
    let install = "`systemd-analyze` is in the package systemd: run `tests/install.sh`";
    let (_, drop_in) = PAGE.split_once("```ini\n").unwrap();
    let drop_in = drop_in.split_once("```").unwrap().0;
    for text in [UNIT.to_owned(), format!("{UNIT}\n{drop_in}")] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tollgate.service");
        // It looks for the program.
        assert!(text.contains("=/usr/bin/tollgate "));
        fs::write(
            &path,
            text.replace("=/usr/bin/tollgate ", &format!("={PROGRAM} ")),
        )
        .unwrap();
        let path = path.to_str().unwrap();
        let (takes, said) = run("systemd-analyze", &["verify", "--man=no", path], install);
        // An unknown setting is a word and no failure.
        assert!(takes && said.is_empty(), "{said}");
        let threshold = format!("--threshold={EXPOSURE}");
        let arguments = ["security", "--offline=true", &threshold, path];
        let (is_below, said) = run("systemd-analyze", &arguments, install);
        assert!(is_below, "{said}");
    }
}

/// The socket of a service manager, and its name.
fn service_manager(folder: &Path, is_abstract: bool) -> (UnixDatagram, String) {
    let socket = folder.join("notify");
    let socket = socket.to_str().unwrap();
    let (bound, name) = match is_abstract {
        true => {
            let address = UnixAddress::from_abstract_name(socket).unwrap();
            (UnixDatagram::bind_addr(&address), format!("@{socket}"))
        }
        false => (UnixDatagram::bind(socket), socket.to_owned()),
    };
    let bound = bound.unwrap();
    bound.set_read_timeout(Some(PATIENCE)).unwrap();
    (bound, name)
}

fn told(manager: &UnixDatagram) -> String {
    let mut words = [0; 4_096];
    let length = manager.recv(&mut words).unwrap();
    String::from_utf8(words[..length].to_vec()).unwrap()
}

/// The next state. A change that the program has found by itself is a status alone.
fn state(manager: &UnixDatagram) -> String {
    loop {
        let told = told(manager);
        if !told.starts_with("STATUS=") {
            return told;
        }
    }
}

/// Waits for a status that begins so, as it comes without a signal.
fn until_status(manager: &UnixDatagram, status: &str) {
    let begun = Instant::now();
    let status = format!("STATUS={status}");
    loop {
        let told = told(manager);
        assert!(told.starts_with("STATUS="), "{told}");
        if told.starts_with(&status) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{told}");
    }
}

#[test]
fn the_program_tells_the_service_manager_what_the_unit_waits_for() {
    assert_eq!(setting("Type"), "notify");
    let reload = setting("ExecReload").strip_prefix("/bin/kill -").unwrap();
    let reload = reload.strip_suffix(" $MAINPID").unwrap();
    for is_abstract in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gateway.toml");
        fs::write(&file, RULES).unwrap();
        let (manager, name) = service_manager(folder.path(), is_abstract);
        let words = setting("ExecStart").replace("/etc/tollgate", folder.path().to_str().unwrap());
        let words = words.replace("127.0.0.1:9090", "127.0.0.1:0");
        let words = words.replace("$TOLLGATE_ARGUMENTS", "--listen 127.0.0.1:0");
        let mut words = words.split(' ');
        assert_eq!(words.next(), Some("/usr/bin/tollgate"));
        let mut program = Command::new(PROGRAM)
            .args(words)
            .env_clear()
            .env("NOTIFY_SOCKET", name)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();

        let well = "READY=1\nSTATUS=answers gateways by 1 policy\n";
        assert_eq!(told(&manager), well);
        let reloads = || {
            signal(&program, reload);
            assert_eq!(
                state(&manager),
                "RELOADING=1\nSTATUS=reads its files again\n"
            );
            state(&manager)
        };
        assert_eq!(reloads(), well);
        fs::write(&file, RULES.replace("10/h", "10/hhh")).unwrap();
        let said = reloads();
        let begins = format!(
            "READY=1\nSTATUS=answers gateways by the configuration of before, since the new one is refused: {}:",
            file.display()
        );
        assert!(said.starts_with(&begins), "{said}");
        assert_eq!(said.lines().count(), 2, "{said}");
        fs::write(&file, RULES.replace("10/h", "20/h")).unwrap();
        assert_eq!(reloads(), well);

        // A file that changes is followed without a signal.
        let refused =
            "answers gateways by the configuration of before, since the new one is refused: ";
        fs::write(&file, RULES.replace("10/h", "10/hhh")).unwrap();
        until_status(&manager, refused);
        fs::write(&file, RULES).unwrap();
        until_status(&manager, "answers gateways by 1 policy\n");
        let more = "\n[[policies]]\nname = 'more'\nquotas = '1/s'\non_demand = true\n";
        fs::write(&file, format!("{RULES}{more}")).unwrap();
        until_status(&manager, "answers gateways by 2 policies\n");
        fs::remove_file(&file).unwrap();
        let gone =
            "answers gateways by the configuration of before, since the file cannot be read: ";
        until_status(&manager, gone);

        signal(&program, "TERM");
        assert!(state(&manager).starts_with("STOPPING=1\n"));
        let ended = program.wait().unwrap();
        let mut log = String::new();
        program
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut log)
            .unwrap();
        assert!(ended.success(), "{log}");
    }
}

#[test]
fn a_service_manager_that_is_not_there_hinders_no_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    fs::write(&file, RULES).unwrap();
    for (name, words) in [
        ("/none/notify", "the service manager does not hear of it"),
        (&*"x".repeat(200), "NOTIFY_SOCKET names no socket"),
    ] {
        let mut program = Command::new(PROGRAM)
            .args(["serve", file.to_str().unwrap(), "--listen", "127.0.0.1:0"])
            .env("NOTIFY_SOCKET", name)
            .env_remove("RUST_LOG")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(program.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains(words) {
            assert_ne!(log.read_line(&mut said).unwrap(), 0, "{said}");
        }
        signal(&program, "TERM");
        log.read_to_string(&mut said).unwrap();
        assert!(program.wait().unwrap().success(), "{said}");
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The instructions of the container file, without comments.
fn instructions(name: &str) -> impl Iterator<Item = &'static str> {
    let begin = format!("{name} ");
    CONTAINER
        .lines()
        .filter_map(move |line| line.strip_prefix(&begin))
}

/// True if a path from the root is in the context of a build: the last pattern that covers it decides, as an engine has it. Only
/// the forms of patterns that the file has are known.
fn is_in_context(path: &str) -> bool {
    let mut is_in = true;
    for line in IGNORED.lines().filter(|line| !line.starts_with('#')) {
        let (pattern, adds) = match line.strip_prefix('!') {
            Some(pattern) => (pattern, true),
            None => (line, false),
        };
        let covers = match pattern.strip_prefix("**/") {
            _ if pattern == "*" => true,
            Some(name) => path.split('/').any(|part| part == name),
            None => {
                assert!(
                    !pattern.contains('*'),
                    "{pattern}: the test does not know it"
                );
                path == pattern || path.starts_with(&format!("{pattern}/"))
            }
        };
        if covers {
            is_in = adds;
        }
    }
    is_in
}

/// Copies what the context has of a path.
fn copy(root: &Path, path: &str, to: &Path) {
    let from = root.join(path);
    let found = fs::symlink_metadata(&from).unwrap();
    if !is_in_context(path) {
    } else if found.is_symlink() {
        std::os::unix::fs::symlink(fs::read_link(&from).unwrap(), to.join(path)).unwrap();
    } else if found.is_dir() {
        fs::create_dir_all(to.join(path)).unwrap();
        for entry in fs::read_dir(&from).unwrap() {
            let name = entry.unwrap().file_name();
            copy(root, &format!("{path}/{}", name.to_str().unwrap()), to);
        }
    } else {
        fs::copy(&from, to.join(path)).unwrap();
    }
}

#[test]
fn the_container_file_builds_from_what_there_is() {
    let (root, context) = (root(), tempfile::tempdir().unwrap());
    let mut sources = Vec::new();
    for words in instructions("COPY").filter(|words| !words.starts_with("--from")) {
        let words: Vec<_> = words.split(' ').collect();
        let (_, named) = words.split_last().unwrap();
        sources.extend(named.to_vec());
    }
    for source in &sources {
        assert!(root.join(source).exists(), "{source} does not exist");
        assert!(is_in_context(source), "{source} is excluded");
        copy(&root, source, context.path());
    }
    for excluded in [".git", "target", "crates/cli/target", "tests/.venv", "docs"] {
        assert!(!is_in_context(excluded), "{excluded}");
    }

    // The sources are a workspace, with this package, this program, and the lock as it is.
    let arguments = [
        "metadata",
        "--format-version=1",
        "--no-deps",
        "--offline",
        "--locked",
    ];
    let metadata = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(context.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&metadata.stderr).into_owned();
    assert!(metadata.status.success(), "{said}");
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let mut packages = packages.iter();
    let package = packages.find(|it| it["name"] == "tollgate-cli").unwrap();
    let mut targets = package["targets"].as_array().unwrap().iter();
    assert!(targets.any(|it| it["name"] == "tollgate" && it["kind"][0] == "bin"));
    let build: Vec<_> = instructions("RUN").collect();
    assert_eq!(
        build,
        ["cargo build --release --locked -p tollgate-cli --bin tollgate"]
    );
    let copied: Vec<_> = instructions("COPY")
        .filter(|words| words.starts_with("--from"))
        .collect();
    let authorities = "/etc/ssl/certs/ca-certificates.crt";
    assert_eq!(
        copied,
        [
            format!("--from=build {authorities} {authorities}"),
            "--from=build /source/target/release/tollgate /usr/bin/tollgate".to_owned(),
        ]
    );
    assert_eq!(instructions("WORKDIR").next(), Some("/source"));

    // The files that sources of the program take in.
    for member in fs::read_dir(context.path().join("crates")).unwrap() {
        let sources = member.unwrap().path().join("src");
        if sources.is_dir() {
            look_at_included(&sources);
        }
    }
}

fn look_at_included(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            look_at_included(&path);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        // Tests and examples of the docs take in files that the build does not need.
        let text = text.split("#[cfg(test)]").next().unwrap();
        let text = text.split("    doctest,\n").next().unwrap();
        for behind in text.split("include_str!(\"").skip(1) {
            let name = behind.split('"').next().unwrap();
            let included = folder.join(name);
            assert!(included.exists(), "{}: {name}", path.display());
        }
    }
}

/// The libraries that the image of Debian has and a program of Rust may need.
const OF_BASE: [&str; 5] = [
    "linux-vdso.so.1",
    "libc.so.6",
    "libm.so.6",
    "libgcc_s.so.1",
    "/lib64/ld-linux-x86-64.so.2",
];

#[test]
fn the_image_has_the_libraries_that_the_program_needs() {
    let images: Vec<_> = instructions("FROM").collect();
    assert_eq!(
        images,
        ["rust:1-slim-bookworm AS build", "debian:bookworm-slim"]
    );
    let (_, said) = run("ldd", &[PROGRAM], "it is in the package libc-bin");
    let needed = said
        .lines()
        .map(|line| line.split_whitespace().next().unwrap());
    let needed: Vec<_> = needed.collect();
    assert!(needed.contains(&"libc.so.6"), "{said}");
    for library in needed {
        let is_loader = library.contains("/ld-linux");
        assert!(is_loader || OF_BASE.contains(&library), "{library}");
    }
}

/// The words of an instruction in the form of JSON.
fn words(name: &str) -> Vec<String> {
    serde_json::from_str(instructions(name).next().unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_of_the_image_answers_as_a_user_without_rights() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("gateway.toml"), RULES).unwrap();
    fs::copy(PROGRAM, path("tollgate")).unwrap();
    fs::create_dir(path("empty")).unwrap();
    for (name, mode) in [("", 0o755), ("gateway.toml", 0o444), ("empty", 0o555)] {
        fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let command = [words("ENTRYPOINT"), words("CMD")].concat();
    let ports: Vec<_> = instructions("EXPOSE").next().unwrap().split(' ').collect();
    let mut arguments = Vec::new();
    for word in &command[1..] {
        let word = word.replace("/etc/tollgate/", &format!("{}/", folder.path().display()));
        arguments.push(match word.strip_prefix("0.0.0.0:") {
            Some(port) => {
                assert!(ports.contains(&port), "{port} is not exposed");
                "127.0.0.1:0".to_owned()
            }
            None => word,
        });
    }
    assert_eq!(command[0], "/usr/bin/tollgate");
    let mut program = Command::new(path("tollgate"));
    program
        .args(&arguments)
        .env_clear()
        .current_dir(path("empty"));
    program.stdin(Stdio::null()).stderr(Stdio::piped());
    let (user, group) = instructions("USER")
        .next()
        .unwrap()
        .split_once(':')
        .unwrap();
    let (me, _) = run("test", &["-w", "/"], "");
    if me {
        // Only root may become another user, and a developer is without rights already.
        program
            .uid(user.parse().unwrap())
            .gid(group.parse().unwrap());
    }
    let mut program = program.spawn().unwrap();
    let mut log = BufReader::new(program.stderr.take().unwrap()).lines();
    let status: SocketAddr = loop {
        let line = log.next().unwrap().unwrap();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        if line["fields"]["message"] == "the status is told" {
            break line["fields"]["address"].as_str().unwrap().parse().unwrap();
        }
    };

    let ready = send(status, "GET /readyz", "").await;

    assert_eq!((ready.status, &*ready.body), (200, "ready\n"));
    let id = program.id();
    let who = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let uid = who.lines().find_map(|line| line.strip_prefix("Uid:\t"));
    assert!(!uid.unwrap().starts_with("0\t"), "{who}");
    let ending = instructions("STOPSIGNAL").next().unwrap();
    signal(&program, ending.strip_prefix("SIG").unwrap());
    let rest: Vec<_> = log.map(Result::unwrap).collect();
    assert!(program.wait().unwrap().success(), "{rest:?}");
}
