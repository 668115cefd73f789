//! Many processes on hosts whose clocks disagree, and one budget.

use std::env;
use std::process::{Command, Stdio};
use std::time::SystemTime;

use crate::common::{Budget, HOUR, Patience, every_algorithm, harness_name};
use tollgate_core::{Backend, Call};
use tollgate_redis::RedisBackend;
use tollgate_testkit::{Standalone, shift_clock};

/// The server's address, set in the worker processes. They run this very test, so that none passes without having done its
/// work.
const URL: &str = "TOLLGATE_TEST_HAMMER";

const NAME: &str =
    "pitfall_eight_processes_with_clocks_hours_apart_admit_exactly_what_the_budgets_hold";

/// The size of each budget, and the requests of each process to each budget: twice as many in all.
const LIMIT: u64 = 1_000;
const EACH: usize = 250;

#[tokio::test]
async fn pitfall_eight_processes_with_clocks_hours_apart_admit_exactly_what_the_budgets_hold() {
    if let Ok(url) = env::var(URL) {
        return hammer(&url).await;
    }
    let server = Standalone::start();
    let now_s = seconds();
    let processes: Vec<_> = (-4..4)
        .map(|number| {
            let ahead_s = number * 7 * 3_600;
            let mut command = Command::new(env::current_exe().unwrap());
            shift_clock(&mut command, ahead_s);
            let process = command
                .args([
                    "--exact",
                    &harness_name(module_path!(), NAME),
                    "--nocapture",
                ])
                .env(URL, server.url())
                .stdout(Stdio::piped())
                .spawn();
            (ahead_s, process.unwrap())
        })
        .collect();

    let mut admitted = [0; 5];
    for (ahead_s, process) in processes {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success());
        let output = String::from_utf8(output.stdout).unwrap();
        let said = output.lines().find_map(|line| line.split_once("at="));
        let mut numbers = said.unwrap().1.split(' ').map(str::parse);
        let at_s: i64 = numbers.next().unwrap().unwrap();
        assert!((at_s - now_s - ahead_s).abs() < 600, "{output}");
        for (sum, number) in admitted.iter_mut().zip(numbers) {
            *sum += u64::try_from(number.unwrap()).unwrap();
        }
    }

    assert_eq!(admitted, [LIMIT; 5]);
}

/// The work of each of the eight.
async fn hammer(url: &str) {
    let builder = RedisBackend::builder(url).patient();
    let backend = builder.connect().await.unwrap();
    let mut said = seconds().to_string();
    // Nothing drains meanwhile.
    for quota in every_algorithm(LIMIT, HOUR * 24 * 300) {
        let budget = Budget::of("processes", quota);
        let calls: Vec<_> = (0..EACH)
            .map(|_| backend.decide(Call::of(&[budget.charge(1)])))
            .collect();
        let mut admitted = 0;
        for call in calls {
            admitted += u64::from(call.await.unwrap().is_admitted());
        }
        said.push_str(&format!(" {admitted}"));
    }
    println!("\nat={said}");
}

/// By the clock of this process.
fn seconds() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap().as_secs().try_into().unwrap()
}
