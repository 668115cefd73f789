//! A configuration file that a limiter follows while it runs.

#![cfg(feature = "serde")]

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tollgate::config::{self, ConfigFile, Registry, Watch};
use tollgate::{Limiter, ManualClock, MemoryBackend, Policy, Quota};
use tollgate_testkit::Log;

struct Trial {
    folder: TempDir,
    limiter: Limiter,
    watch: Watch,
}

fn file(path: &Path) -> ConfigFile {
    config::watch(path, |text| toml::from_str(text))
}

/// A limiter that follows a file with this content. Outside of a runtime no task looks at it.
fn following(text: &str) -> Trial {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    fs::write(&path, text).unwrap();
    let mut file = file(&path);
    let backend = MemoryBackend::builder().clock(ManualClock::new()).build();
    let limiter = file.load().unwrap().backend(backend).build().unwrap();
    let watch = file.follow(&limiter);
    Trial {
        folder,
        limiter,
        watch,
    }
}

impl Trial {
    fn path(&self) -> PathBuf {
        self.folder.path().join("limits.toml")
    }

    fn write(&self, text: &str) -> Vec<String> {
        fs::write(self.path(), text).unwrap();
        self.watch.reload().unwrap()
    }

    fn refusal(&self, text: &str) -> config::ReloadError {
        fs::write(self.path(), text).unwrap();
        self.watch.reload().unwrap_err()
    }

    fn quota(&self) -> String {
        let policy = self.limiter.policy("api").unwrap();
        format!("{policy:?}")
    }
}

/// Longer than reading a file takes, however busy the machine is.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

const TEN: &str = "[[policies]]\nname = \"api\"\nquotas = \"10/s\"\n";

#[test]
fn each_change_is_told_in_words_and_logged() {
    let log = Log::default();
    let _listening = log.listen();
    let trial = following(TEN);
    let file = format!("file={}", trial.path().display());
    for (text, words) in [
        (
            TEN.replace("10/s", "100/s"),
            "policy api: 10/s → 100/s; takes effect at once; callers keep what they have used",
        ),
        (
            TEN.replace("10/s", "100/s fixed-window"),
            "policy api: 100/s → 100/s fixed-window; takes effect at once; callers begin with a full budget where the algorithm, \
             the length of the window or the name of a quota has changed",
        ),
        (
            TEN.replace("10/s", "100/s fixed-window") + "shadow = true\n",
            "policy api: enforced → on trial; takes effect at once; callers keep what they have used",
        ),
        (
            TEN.replace("10/s", "100/s fixed-window") + "shadow = true\nroutes = [\"/api\"]\n",
            "policy api: routes: changed; takes effect at once",
        ),
        (
            TEN.replace("api", "app"),
            "policy app: new, 10/s; takes effect at once; callers that used this name before keep what they have used",
        ),
        (
            format!("ipv6_prefix = 56\n{}", TEN.replace("api", "app")),
            "ipv6_prefix: changed; takes effect at the next start",
        ),
        (
            format!(
                "ipv6_prefix = 56\n{}key = \"global\"\n",
                TEN.replace("api", "app")
            ),
            "policy app: another key; takes effect at once; callers begin with a full budget",
        ),
    ] {
        let said = trial.write(&text);
        assert_eq!(said[0], words);
        let text = log.text();
        let mut lines = text.lines();
        let line = lines.rfind(|line| line.contains(words)).unwrap();
        assert!(line.contains("INFO") && line.contains(&file), "{line}");
    }
    assert!(trial.limiter.policy("app").is_some() && trial.limiter.policy("api").is_none());
}

/// The figures are those after which such a caller passes: `replacement_effects.rs`.
#[test]
fn a_change_that_makes_spent_callers_wait_for_longer_says_for_how_long() {
    let keep = "takes effect at once; callers keep what they have used";
    let waits = "one that has spent all waits for up to";
    let raised = "although the rate is raised, one that has spent all waits for up to";
    let ends = "`tollgate reset api KEY --redis URL --limits FILE` ends the wait";
    for (from, to, words) in [
        (
            "60/h burst 100",
            "60/h burst 10",
            format!("{keep}; {waits} 5460s: {ends}"),
        ),
        (
            "24/day",
            "60/min",
            format!("{keep}; {raised} 86341s: {ends}"),
        ),
        (
            "60/min",
            "60/s",
            format!("{keep}; {raised} 59.017s: {ends}"),
        ),
        (
            "100/h",
            "100/min",
            format!("{keep}; {raised} 3540.6s: {ends}"),
        ),
        (
            "10/min",
            "1000/min burst 10",
            format!("{keep}; {raised} 59.46s: {ends}"),
        ),
        // It waits no longer than the new quota says.
        ("10/min", "20/min", keep.to_owned()),
        ("60/min", "24/day", keep.to_owned()),
        (
            "20/h fixed-window",
            "10/h fixed-window",
            format!("{keep}; {waits} 3600s: {ends}"),
        ),
        (
            "20/h sliding-window",
            "10/h sliding-window",
            format!("{keep}; {waits} 7200s: {ends}"),
        ),
        ("10/h sliding-log", "20/h sliding-log", keep.to_owned()),
        (
            "10/s; 1000/day",
            "1000/day; 10/s",
            format!(
                "{keep}, each quota what the one at its place had used: quotas with names keep their own; {waits} 86399.1s: {ends}"
            ),
        ),
    ] {
        assert_eq!(told_change(from, to), words, "{from} to {to}");
    }
}

#[test]
fn a_tier_that_is_raised_says_how_long_its_spent_callers_wait() {
    let with = |gold: &str| {
        format!(
            "{TEN}\n[policies.tiers]\nby = {{ \"203.0.113.7\" = \"gold\" }}\nquotas = {{ gold = \"{gold}\" }}\n"
        )
    };
    let trial = following(&with("100/h"));
    let said = trial.write(&with("100/min"));
    let told = said[0].replace(&*trial.path().to_string_lossy(), "FILE");
    assert!(
        told.ends_with(
            "tiers: changed; takes effect at once; tier gold: callers keep what they have used; although the rate is raised, one that \
             has spent all waits for up to 3540.6s: `tollgate reset api KEY --redis URL --limits FILE` ends the wait"
        ),
        "{told}"
    );
}

#[test]
fn a_quota_that_stays_says_how_long_its_spent_callers_wait_beside_one_that_is_new() {
    let trial = following(&TEN.replace("10/s", "100/h"));
    let said = trial.write(&TEN.replace("\"10/s\"", "[\"100/min\", \"10/s\"]"));
    let new = "callers begin with a full budget where";
    assert!(
        said[0].contains(new) && said[0].contains("waits for up to 3540.6s"),
        "{said:?}"
    );
}

#[test]
fn a_tier_that_begins_anew_says_so() {
    let with = |gold: &str| {
        format!(
            "{TEN}\n[policies.tiers]\nby = {{ \"203.0.113.7\" = \"gold\" }}\nquotas = {{ gold = \"{gold}\" }}\n"
        )
    };
    let trial = following(&with("100/h"));
    let said = trial.write(&with("100/h fixed-window"));
    assert!(
        said[0].contains("tier gold: callers begin with a full budget where"),
        "{said:?}"
    );
}

/// The words about a change of the only quota.
fn told_change(from: &str, to: &str) -> String {
    let trial = following(&TEN.replace("10/s", from));
    let said = trial.write(&TEN.replace("10/s", to));
    let change = format!("policy api: {from} → {to}; ");
    let (_, told) = said[0].split_once(&change).unwrap();
    told.replace(&*trial.path().to_string_lossy(), "FILE")
}

/// Until the end of the window, and a month has 31 days at most.
#[cfg(feature = "calendar")]
#[test]
fn a_smaller_quota_of_a_calendar_says_how_long_spent_callers_wait() {
    let smaller = told_change("1000/month in UTC", "500/month in UTC");
    assert!(smaller.contains("waits for up to 2678400s"), "{smaller}");
    let larger = told_change("500/month in UTC", "1000/month in UTC");
    assert!(!larger.contains("waits"), "{larger}");
}

#[test]
fn a_policy_that_leaves_is_told_after_those_that_come_and_an_identity_never_is() {
    let trial = following(TEN);
    let said = trial.write(&TEN.replace("api", "app"));
    assert_eq!(said[1], "policy api: gone; it limits no caller from now on");
    let secret =
        TEN.replace("api", "app") + "key = { header = \"x-key\" }\nexempt_keys = [\"s3cret\"]\n";
    let said = trial.write(&secret).join("\n");
    assert!(
        said.contains("exempt_keys: changed") && !said.contains("s3cret"),
        "{said}"
    );
}

#[test]
fn a_change_of_the_file_replaces_the_policies_of_the_application_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    fs::write(&path, TEN).unwrap();
    let mut file = file(&path);
    let own = Policy::new("own", Quota::per_second(1));
    let limiter = file.load().unwrap().policy(own).build().unwrap();
    let watch = file.follow(&limiter);
    let names = || -> Vec<_> {
        let policies = limiter.policies();
        let names = policies.iter().map(|policy| policy.name().to_owned());
        names.collect()
    };

    watch.reload().unwrap();
    assert_eq!(names(), ["api", "own"]);
    fs::write(&path, TEN.replace("10/s", "20/s")).unwrap();
    watch.reload().unwrap();
    assert_eq!(names(), ["api"]);
}

#[test]
fn the_same_content_changes_nothing() {
    let trial = following(TEN);
    assert_eq!(trial.watch.reload().unwrap(), Vec::<String>::new());
    // A comment is another content, and no other configuration.
    assert_eq!(trial.write(&format!("# ours\n{TEN}")), Vec::<String>::new());
}

#[test]
fn a_file_that_is_wrong_changes_nothing_and_says_where_it_is_wrong() {
    let trial = following(TEN);
    let log = Log::default();
    let _listening = log.listen();
    let before = trial.quota();
    let api = |line, field| (Some(line), Some("api"), field);
    for (text, place, words) in [
        (
            TEN.replace("10/s", "10/minit"),
            api(3, Some("quotas")),
            "found \"minit\"",
        ),
        (
            format!("{TEN}routes = [\"api\"]\n"),
            api(4, Some("routes")),
            "route \"api\"",
        ),
        (format!("{TEN}rotes = [\"/api\"]\n"), api(4, None), "rotes"),
        (
            format!("{TEN}on_failure = 7\n"),
            api(4, Some("on_failure")),
            "on_failure",
        ),
        (format!("{TEN}{TEN}"), api(5, None), "two policies"),
        (
            format!("{TEN}quotas = \"\"\n"),
            (Some(4), None, None),
            "duplicate key",
        ),
        (String::new(), (None, None, None), "limits nothing"),
        ("policies = [".to_owned(), (Some(1), None, None), "TOML"),
    ] {
        let error = trial.refusal(&text);
        let said = error.to_string();
        assert!(
            said.starts_with(&trial.path().display().to_string()),
            "{said}"
        );
        assert!(said.contains(words), "{said}");
        assert_eq!(
            (error.line(), error.policy(), error.field()),
            place,
            "{said}"
        );
        assert_eq!(trial.quota(), before);
        // It is said again when it is asked for, and logged once.
        assert_eq!(trial.watch.reload().unwrap_err(), error);
    }
    let lines = log.text();
    let first = lines.lines().find(|line| line.contains("minit")).unwrap();
    for field in [
        "ERROR",
        "file=",
        "line=3",
        "policy=\"api\"",
        "field=\"quotas\"",
    ] {
        assert!(first.contains(field), "{field}: {first}");
    }
    assert_eq!(
        lines
            .matches("the configuration is refused; the one before stays")
            .count(),
        8,
        "{lines}"
    );

    assert_eq!(trial.write(TEN), Vec::<String>::new());
}

#[test]
fn a_file_that_cannot_be_read_is_told_as_that_and_what_was_known_of_it_stays() {
    let log = Log::default();
    let _guard = log.listen();
    let trial = following(TEN);
    let path = trial.path();
    let away = path.with_extension("away");
    let wrong = TEN.replace("10/s", "10/minit");

    for text in [TEN.to_owned(), wrong] {
        fs::write(&path, &text).unwrap();
        let before = trial.watch.reload();
        assert_eq!(trial.watch.fault(), before.clone().err());
        fs::rename(&path, &away).unwrap();
        for _ in 0..3 {
            let error = trial.watch.reload().unwrap_err();
            assert!(error.is_unreadable(), "{error}");
            assert_eq!(trial.watch.fault(), Some(error));
        }
        fs::rename(&away, &path).unwrap();
        assert_eq!(trial.watch.reload(), before);
        assert_eq!(trial.watch.fault(), before.err());
    }

    let lines = log.text();
    for (words, count) in [
        ("the configuration cannot be read; the one before stays", 2),
        ("the configuration can be read again", 2),
        // That of the wrong text.
        ("the configuration is refused; the one before stays", 1),
    ] {
        assert_eq!(lines.matches(words).count(), count, "{words}: {lines}");
    }
}

/// To open one would wait for its writer, for ever.
#[cfg(unix)]
#[test]
fn a_named_pipe_in_place_of_the_file_is_told_and_waited_for_by_nobody() {
    let trial = following(TEN);
    fs::remove_file(trial.path()).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(trial.path())
        .status();
    assert!(made.unwrap().success());

    let (tells, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tells.send(trial.watch.reload()));
    let told = told.recv_timeout(PATIENCE).expect("nothing is waited for");

    let error = told.unwrap_err();
    assert!(error.is_unreadable(), "{error}");
    assert!(error.to_string().contains("not a file"), "{error}");
}

#[cfg(feature = "metrics")]
#[test]
fn a_file_that_is_refused_is_counted_once_and_so_is_the_one_that_replaces_it() {
    // given
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let page = recorder.handle();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    fs::write(&path, TEN).unwrap();
    let mut file = file(&path);
    let limiter = file.load().unwrap().metrics().build().unwrap();
    let watch = file.follow(&limiter);
    let counts = || {
        limiter.publish_metrics();
        let page = page.render();
        [
            "replacements_total{result=\"applied\"}",
            "replacements_total{result=\"refused\"}",
            "last_replacement_successful",
            "version",
        ]
        .map(|name| {
            let series = format!("rate_limiting_config_{name} ");
            let value = page.lines().find_map(|line| line.strip_prefix(&series));
            value.unwrap().to_owned()
        })
    };
    assert_eq!(counts(), ["0", "0", "1", "0"]);

    for (text, expected) in [
        (TEN.replace("10/s", "10/minit"), ["0", "1", "0", "0"]),
        (TEN.replace("10/s", "20/s"), ["1", "1", "1", "1"]),
        (TEN.replace("10/s", "10/hourly"), ["1", "2", "0", "1"]),
        // As it was before it was wrong.
        (TEN.replace("10/s", "20/s"), ["2", "2", "1", "2"]),
    ] {
        fs::write(&path, text).unwrap();
        for _look in 0..3 {
            let _told = watch.reload();
            assert_eq!(counts(), expected);
        }
    }
}

#[test]
fn a_file_that_is_gone_or_no_text_is_told_once_and_the_policies_stay() {
    let trial = following(TEN);
    let log = Log::default();
    let _listening = log.listen();

    fs::remove_file(trial.path()).unwrap();
    for _ in 0..3 {
        assert!(
            trial
                .watch
                .reload()
                .unwrap_err()
                .to_string()
                .contains("No such file")
        );
    }
    assert_eq!(log.text().matches("cannot be read").count(), 1);
    fs::write(trial.path(), b"\xff\xfe").unwrap();
    assert!(
        trial
            .watch
            .reload()
            .unwrap_err()
            .to_string()
            .contains("UTF-8")
    );
    fs::write(trial.path(), vec![b'#'; (4 << 20) + 1]).unwrap();
    assert!(
        trial
            .watch
            .reload()
            .unwrap_err()
            .to_string()
            .contains("longer than 4194304 bytes")
    );
    assert!(trial.limiter.policy("api").is_some());

    assert_eq!(trial.write(TEN), Vec::<String>::new());
}

/// Kubernetes mounts a file as a link to a link, and changes it by exchanging the inner one.
#[cfg(unix)]
#[test]
fn a_file_that_is_mounted_through_links_is_followed() {
    use std::os::unix::fs::symlink;

    // given
    let mount = tempfile::tempdir().unwrap();
    let at = |name: &str| mount.path().join(name);
    for (version, text) in [
        ("..1", TEN.to_owned()),
        ("..2", TEN.replace("10/s", "20/s")),
    ] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("limits.toml"), text).unwrap();
    }
    symlink("..1", at("..data")).unwrap();
    symlink("..data/limits.toml", at("limits.toml")).unwrap();
    let mut file = file(&at("limits.toml"));
    let limiter = file.load().unwrap().build().unwrap();
    let watch = file.follow(&limiter);

    // when
    symlink("..2", at("..data_tmp")).unwrap();
    fs::rename(at("..data_tmp"), at("..data")).unwrap();
    fs::remove_dir_all(at("..1")).unwrap();

    // then
    let said = watch.reload().unwrap();
    assert_eq!(
        said,
        ["policy api: 10/s → 20/s; takes effect at once; callers keep what they have used"]
    );
}

#[test]
fn the_first_load_fails_hard() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    fs::write(
        &path,
        "[[policies]]\nname = \"api\"\nquotas = \"10/s\"\nwhen = [\"nobody\"]\n",
    )
    .unwrap();

    let error = file(&path).load().unwrap_err();
    assert_eq!(
        (error.line(), error.policy(), error.field()),
        (Some(4), Some("api"), Some("when"))
    );
    let registry = Registry::new().register_condition("nobody", |_| false);
    assert!(file(&path).registry(registry).load().is_ok());
}

/// The clock of the runtime is paused, so that two seconds take no time.
#[tokio::test(start_paused = true)]
async fn a_task_looks_at_the_file_until_the_watch_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    fs::write(&path, TEN).unwrap();
    let mut file = file(&path);
    let limiter = file.load().unwrap().build().unwrap();
    let watch = file.follow(&limiter);
    let has = async |name: &str| {
        for _ in 0..1_000 {
            if limiter.policy(name).is_some() {
                return true;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        false
    };

    let written = tokio::time::Instant::now();
    fs::write(&path, TEN.replace("api", "app")).unwrap();
    assert!(has("app").await);
    // Every two seconds; and this looks ten times a second.
    let took = written.elapsed();
    assert!(took <= std::time::Duration::from_millis(2_200), "{took:?}");

    drop(watch);
    fs::write(&path, TEN).unwrap();
    assert!(!has("api").await);
}

/// The clock of the runtime stands still while a blocking task runs, so that only the signal can be the reason.
#[cfg(unix)]
#[tokio::test(start_paused = true)]
async fn a_hang_up_signal_reads_the_file_at_once() {
    // given
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    fs::write(&path, TEN).unwrap();
    let mut file = file(&path);
    let limiter = file.load().unwrap().build().unwrap();
    let (let_go, held) = std::sync::mpsc::channel::<()>();
    let blocking = tokio::task::spawn_blocking(move || held.recv());
    let began = tokio::time::Instant::now();
    let _watch = file.follow(&limiter);
    // It listens from its first turn on. Without a listener the signal would end the process.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }

    // when
    fs::write(&path, TEN.replace("api", "app")).unwrap();
    let process = std::process::id().to_string();
    let sent = std::process::Command::new("kill")
        .args(["-HUP", &process])
        .status();
    assert!(sent.unwrap().success());

    // then
    let patience = std::time::Instant::now();
    while limiter.policy("app").is_none() {
        assert!(patience.elapsed() < std::time::Duration::from_secs(60));
        tokio::task::yield_now().await;
    }
    assert_eq!(began.elapsed(), std::time::Duration::ZERO);
    drop(let_go);
    assert!(blocking.await.unwrap().is_err());
}
