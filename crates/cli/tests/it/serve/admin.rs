//! The admin of the program, and its token.

use std::fs;
use std::net::SocketAddr;

use crate::serve::http::{post, send};
use crate::serve::program::{RULES, Told, file, outcome_with, program_with};

#[tokio::test(flavor = "multi_thread")]
async fn the_admin_is_there_if_it_is_asked_for_with_a_token_that_is_nowhere_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = file(folder.path(), RULES);
    let secret = folder.path().join("token");
    // The rest of the file does not count, nor do blanks around the token.
    fs::write(&secret, "  a-token-in-a-file \r\nand a remark\n").unwrap();
    let (file, secret) = (&*file, secret.to_str().unwrap());
    let arguments = [file, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let with_file = [&arguments[..], &["--admin-token-file", secret]].concat();
    for (arguments, variable, token) in [
        (
            &arguments[..],
            Some("a-token-in-a-variable"),
            "a-token-in-a-variable",
        ),
        // The argument is meant before the variable.
        (
            &with_file[..],
            Some("a-token-in-a-variable"),
            "a-token-in-a-file",
        ),
        (&with_file[..], None, "a-token-in-a-file"),
    ] {
        let mut program = program_with(arguments, variable);
        let mut log = Told::by(&mut program);
        let admin: SocketAddr = log.address("operators may steer");
        let bearer = |token: &str| format!("authorization: Bearer {token}\r\n");
        let state = send(admin, "GET /api/state", &bearer(token)).await;
        assert_eq!(state.status, 200, "{state:?}");
        assert!(state.body.contains("\"name\":\"api\""), "{state:?}");
        let refused = send(admin, "GET /api/state", &bearer("another-token-of-16")).await;
        assert_eq!(refused.status, 401, "{refused:?}");
        let body = "{\"policy\":\"api\",\"to\":\"off\"}";
        let switched = post(admin, "/api/switch", &bearer(token), body).await;
        assert_eq!(switched.status, 200, "{switched:?}");

        program.kill().unwrap();
        program.wait().unwrap();
        let told = log.all().join("\n");
        assert!(
            told.contains("the admin was asked without its token"),
            "{told}"
        );
        assert!(told.contains("the admin has switched a policy"), "{told}");
        assert!(
            !told.contains("a-token-in") && !told.contains("another-token"),
            "{told}"
        );
    }
}

#[test]
fn the_admin_does_not_start_without_a_good_token() {
    let folder = tempfile::tempdir().unwrap();
    let file = &*file(folder.path(), RULES);
    let secret = folder.path().join("token");
    fs::write(&secret, "\na-token-on-the-second-line\n").unwrap();
    let secret = secret.to_str().unwrap();
    let admin = [file, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];

    // A check says it as the start does.
    let outcome_with = |arguments: &[&str], token: Option<&str>| {
        let started = outcome_with(arguments, token);
        let checked = outcome_with(&[arguments, &["--check"]].concat(), token);
        assert_eq!(checked.0, started.0, "{checked:?}");
        let reason = |said: &str| {
            said.lines()
                .find(|line| line.starts_with("error:"))
                .map(str::to_owned)
        };
        assert_eq!(reason(&checked.1), reason(&started.1), "{checked:?}");
        started
    };
    let outcome = |arguments: &[&str]| outcome_with(arguments, None);
    let (status, said) = outcome(&admin);
    assert_eq!(status, Some(2));
    let words = "--admin needs a token: name a file by --admin-token-file, or set TOLLGATE_ADMIN_TOKEN; `openssl rand -hex 32` makes one";
    assert!(said.contains(words), "{said}");
    for token in ["", "fifteen-bytes-x", "  fifteen-bytes-x   "] {
        let (status, said) = outcome_with(&admin, Some(token));
        assert_eq!(status, Some(1));
        let words = "TOLLGATE_ADMIN_TOKEN: the admin's token is shorter than 16 bytes";
        assert!(said.contains(words) && !said.contains("fifteen"), "{said}");
    }
    let (status, said) = outcome_with(&admin, Some("a token with blanks"));
    assert_eq!(status, Some(1));
    assert!(
        said.contains("has blanks") && !said.contains("a token with"),
        "{said}"
    );
    let with_file = |path| [&admin[..], &["--admin-token-file", path]].concat();
    let (status, said) = outcome(&with_file(secret));
    assert_eq!(status, Some(1));
    assert!(
        said.contains(&format!("{secret}: the admin's token is shorter")),
        "{said}"
    );
    let (status, said) = outcome(&with_file("/nowhere/token"));
    assert_eq!(status, Some(1));
    assert!(said.contains("/nowhere/token: "), "{said}");
    // A token alone opens nothing.
    let (status, said) = outcome(&[file, "--admin-token-file", secret]);
    assert_eq!(status, Some(2));
    assert!(said.contains("--admin <ADDRESS>"), "{said}");
    // No argument takes the token itself.
    let (status, _) = outcome(&[file, "--admin-token", "a-token-as-an-argument"]);
    assert_eq!(status, Some(2));
    let taken = [file, "--listen", "127.0.0.1:0", "--admin", "192.0.2.1:1"];
    let (status, said) = crate::serve::program::outcome_with(&taken, Some("a-token-in-a-variable"));
    assert_eq!(status, Some(1));
    assert!(said.contains("--admin 192.0.2.1:1: "), "{said}");
}
