//! The file that `tollgate nginx` writes: it is there whole or not at all, and nginx begins with none that it does not know.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};

use tollgate_testkit::Standalone;

use crate::nginx::client::status;
use crate::nginx::served::{Gate, convert};

const LIMITS: &str = "policies = [{ name = 'a', quotas = '2/h' }]";

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_the_module_does_not_know_is_refused_and_a_reload_leaves_all_as_it_was() {
    let redis = Standalone::start();
    let gate = Gate::start(LIMITS, &redis).await;
    assert_eq!(status(gate.address(), "GET /").await, 200);
    let text = fs::read_to_string(gate.json()).unwrap();
    let other = |version| text.replace("\"version\": 2,", version);
    let anew = "; write it with `tollgate nginx` of the release that this module is from";
    let wrong = [
        (
            other("\"version\": 1,"),
            format!("it has version 1, and this module reads version 2{anew}"),
        ),
        (
            other("\"version\": 3,"),
            format!("it has version 3, and this module reads version 2{anew}"),
        ),
        (
            other(""),
            format!("it has no version, and this module reads version 2{anew}"),
        ),
        (
            text[..text.len() / 2].to_owned(),
            "it is not whole, or is not what `tollgate nginx` writes".to_owned(),
        ),
        (
            LIMITS.to_owned(),
            "it is not whole, or is not what `tollgate nginx` writes".to_owned(),
        ),
        (
            String::new(),
            "it is not whole, or is not what `tollgate nginx` writes".to_owned(),
        ),
        (
            "2".to_owned(),
            format!("it is not whole, or is not what `tollgate nginx` writes (no object){anew}"),
        ),
        (
            text.replace("\"by\": \"client-ip\"", "\"by\": \"fingerprint\""),
            "policy a: no key is called fingerprint".to_owned(),
        ),
    ];
    let mut before = gate.nginx.log().len();
    for (wrong, words) in wrong {
        assert_ne!(wrong, text);
        fs::write(gate.json(), wrong).unwrap();
        gate.reload();
        gate.until_log_from(before, &words).await;
        before = gate.nginx.log().len();
    }
    assert_eq!(status(gate.address(), "GET /").await, 200);
    assert_eq!(status(gate.address(), "GET /").await, 429);

    // A file that is right takes effect.
    gate.write("policies = [{ name = 'b', quotas = '4/h' }]");
    gate.reload();
    gate.until("GET /", 200).await;
}

#[test]
fn a_file_is_replaced_whole_and_keeps_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name).to_str().unwrap().to_owned();
    let (toml, json, link) = (path("limits.toml"), path("nginx.json"), path("link.json"));
    fs::write(&toml, LIMITS).unwrap();
    fs::write(&json, "of before").unwrap();
    fs::set_permissions(&json, Permissions::from_mode(0o640)).unwrap();
    symlink(&json, &link).unwrap();
    let reader = File::open(&json).unwrap();

    assert_eq!(
        convert(&[&toml, "--output", &link]),
        (Some(0), String::new())
    );

    // A program that has opened the file still reads all that it had.
    assert_eq!(io::read_to_string(reader).unwrap(), "of before");
    let written = fs::read_to_string(&json).unwrap();
    assert!(
        written.contains("\"version\": 2") && written.ends_with("}\n"),
        "{written}"
    );
    assert_eq!(
        fs::metadata(&json).unwrap().permissions().mode() & 0o777,
        0o640
    );
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    let mut names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["limits.toml", "link.json", "nginx.json"]);
}

#[test]
fn a_file_that_cannot_be_written_leaves_the_old_one_and_the_reason_is_plain() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name).to_str().unwrap().to_owned();
    let (toml, json) = (path("limits.toml"), path("none/nginx.json"));
    fs::write(&toml, LIMITS).unwrap();
    let (code, said) = convert(&[&toml, "--output", &json]);
    let reason = format!("error: {json}: there is no folder {}\n", path("none"));
    assert_eq!((code, said), (Some(1), reason));

    // A pipe or a device is not replaced.
    assert_eq!(
        convert(&[&toml, "--output", "/dev/null"]),
        (Some(0), String::new())
    );
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}
