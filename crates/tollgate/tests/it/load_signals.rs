//! Signals that are measured, on the machine that runs the tests.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use tollgate::key::Header;
use tollgate::{Limiter, Policy, Pressure, PressureGauge};

/// Waits for as long as a busy machine may need.
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The number of threads of this process that have this name.
fn threads(name: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|comm| comm.trim() == name).count()
}

/// On a machine with control groups both are measured; on any other they are errors with a sentence.
#[test]
fn cpu_and_memory_are_measured_by_one_thread_each_that_ends_with_the_last_handle() {
    type Build = fn() -> Result<Pressure, tollgate::ConfigError>;
    let signals: [(&str, Build); 2] = [("cpu", Pressure::cpu), ("memory", Pressure::memory)];
    for (name, build) in signals {
        let pressure = match build() {
            Ok(pressure) => pressure,
            Err(error) => {
                let said = error.to_string();
                let begins = format!("pressure: {name}: ");
                assert!(
                    said.starts_with(&begins) && said.len() > begins.len() + 10,
                    "{said}"
                );
                assert!(
                    !Path::new("/sys/fs/cgroup/cgroup.controllers").exists() || name == "cpu",
                    "{said}"
                );
                continue;
            }
        };
        let thread = format!("tollgate-{name}");
        eventually("it runs", || threads(&thread) == 1);
        let level = pressure.level();
        assert!((0.0..=1.0).contains(&level), "{level}");
        // Memory is known at once, and some is always used.
        assert!(name != "memory" || level > 0.0, "{level}");

        // Clones, a limiter and a combination are handles of one signal, measured by one thread.
        let limiter = Limiter::builder()
            .classes(["critical", "batch"], Header::new("x-class"))
            .shed(pressure.clone().max(PressureGauge::new()), [("batch", 1.0)])
            .build()
            .unwrap();
        assert_eq!(threads(&thread), 1);
        drop(pressure);
        thread::sleep(Duration::from_millis(20));
        assert_eq!(threads(&thread), 1, "the limiter has it still");
        drop(limiter);
        eventually("it ends", || threads(&thread) == 0);
    }
}

/// Lateness is made here, and not waited for: the one thread of the runtime is blocked.
#[tokio::test(flavor = "current_thread")]
async fn a_runtime_that_is_blocked_is_late_and_one_that_is_not_recovers() {
    let lag = Pressure::lag(Duration::from_millis(100)).unwrap();
    tokio::task::yield_now().await;

    for _ in 0..4 {
        thread::sleep(Duration::from_millis(160));
        // The task that measures runs now, and is late by a hundred or more.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
    }
    let blocked = lag.level();
    let begun = Instant::now();
    while lag.level() > 0.3 && begun.elapsed() < Duration::from_secs(60) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }

    assert!(blocked > 0.9, "{blocked}");
    assert!(lag.level() <= 0.3);
}

/// The signal and the limiter together: batch jobs are refused while the runtime is late, and pass again.
#[tokio::test(flavor = "current_thread")]
async fn a_limiter_refuses_the_unimportant_while_its_runtime_is_late() {
    let lag = Pressure::lag(Duration::from_millis(100)).unwrap();
    let limiter = Limiter::builder()
        .policy(Policy::new("api", "1000/h"))
        .classes(["critical", "batch"], Header::new("x-class"))
        .shed(lag, [("batch", 0.8)])
        .build()
        .unwrap();
    let passes = async |class| {
        let check = limiter.check("api", "alice").class(class);
        check.await.unwrap().is_allowed()
    };
    tokio::task::yield_now().await;
    assert!(passes("batch").await);

    for _ in 0..4 {
        thread::sleep(Duration::from_millis(160));
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
    }

    assert!(!passes("batch").await);
    assert!(passes("critical").await);
    let begun = Instant::now();
    while !passes("batch").await {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "it is still late"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn the_task_that_measures_a_runtime_ends_with_its_handle_and_with_the_runtime() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().build().unwrap()
    };
    let millisecond = Duration::from_millis(1);
    let one = runtime();
    let lag = one.block_on(async { Pressure::lag(millisecond) }).unwrap();
    assert_eq!(one.metrics().num_alive_tasks(), 1);
    drop(lag);
    one.block_on(async { tokio::time::sleep(millisecond).await });
    assert_eq!(one.metrics().num_alive_tasks(), 0);

    let other = runtime();
    let lag = other.block_on(async {
        let lag = Pressure::lag(millisecond).unwrap();
        tokio::task::yield_now().await;
        thread::sleep(Duration::from_millis(80));
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        lag
    });
    assert!(lag.level() > 0.0);
    drop(other);
    assert_eq!(lag.level(), 0.0);
}

#[test]
fn lateness_needs_a_runtime_and_a_scale() {
    let refused = Pressure::lag(Duration::from_millis(100)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "pressure: lag: there is no tokio runtime here to be measured"
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let refused = runtime.block_on(async { Pressure::lag(Duration::ZERO) });
    assert_eq!(
        refused.unwrap_err().to_string(),
        "pressure: lag: every task is late by zero"
    );
}
