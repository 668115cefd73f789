//! The scripts, joined from the files in `lua/`, and their names on the server.

mod compose;
mod shape;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

pub(crate) use self::shape::{MOST, Shape, is_composed};
use crate::sync::Mutex;

/// The files of this crate's own script. Their order matters: a file uses the names of those before it.
const SOURCE: &str = concat!(
    include_str!("../lua/head.lua"),
    include_str!("../lua/held_alone.lua"),
    include_str!("../lua/shared.lua"),
    include_str!("../lua/held_apart.lua"),
    include_str!("../lua/rules.lua"),
    include_str!("../lua/debts.lua"),
    include_str!("../lua/waiting.lua"),
    include_str!("../lua/warming.lua"),
    include_str!("../lua/gcra.lua"),
    include_str!("../lua/fixed_window.lua"),
    include_str!("../lua/sliding_window.lua"),
    include_str!("../lua/rolling_window.lua"),
    include_str!("../lua/sliding_log.lua"),
    include_str!("../lua/held.lua"),
    include_str!("../lua/ban.lua"),
    include_str!("../lua/interval_refill.lua"),
    include_str!("../lua/calendar.lua"),
    include_str!("../lua/once.lua"),
    include_str!("../lua/grant.lua"),
    include_str!("../lua/deciding.lua"),
    include_str!("../lua/main.lua"),
);

/// The files of the script for gateways, which tells what came out of a request.
pub(crate) const DECIDE_FORM: &str = concat!(
    include_str!("../lua/head.lua"),
    include_str!("../lua/decide_alone.lua"),
    include_str!("../lua/shared.lua"),
    include_str!("../lua/rules.lua"),
    include_str!("../lua/debts.lua"),
    include_str!("../lua/waiting.lua"),
    include_str!("../lua/warming.lua"),
    include_str!("../lua/gcra.lua"),
    include_str!("../lua/fixed_window.lua"),
    include_str!("../lua/sliding_window.lua"),
    include_str!("../lua/rolling_window.lua"),
    include_str!("../lua/sliding_log.lua"),
    include_str!("../lua/ban.lua"),
    include_str!("../lua/interval_refill.lua"),
    include_str!("../lua/calendar.lua"),
    include_str!("../lua/deciding.lua"),
    include_str!("../lua/standing.lua"),
    include_str!("../lua/decide.lua"),
);

/// The most composed scripts of a backend. Which policies match decides about shapes, and callers steer that: beyond this number the
/// general script decides.
const MOST_SHAPES: usize = 64;

/// The one line in which the script asks for the time. Tests replace it.
#[cfg(any(test, feature = "test-clock"))]
const CLOCK: &str = "local clock = redis.call('TIME')";

/// A script and the SHA-1 by which `EVALSHA` knows it, computed once.
#[derive(Debug)]
pub(crate) struct Script {
    source: Cow<'static, str>,
    sha: String,
}

impl Script {
    /// The script as it ships: the time is the server's.
    pub(crate) fn shipped() -> Self {
        Self::of(source())
    }

    /// The script with a time that tests have put on the server, in µs. It stands under this key, or on a node of a cluster
    /// under the first of `key{0}`, `key{1}` … that is its own.
    #[cfg(any(test, feature = "test-clock"))]
    pub(crate) fn with_clock(key: &str) -> Self {
        Self::of(by_clock(&source(), key))
    }

    /// The script for gateways, likewise.
    #[cfg(test)]
    pub(crate) fn decide_form_with_clock(key: &str) -> Self {
        Self::of(by_clock(&named("TOLLGATE_DECIDE_FORM", DECIDE_FORM), key))
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    pub(crate) fn sha(&self) -> &str {
        &self.sha
    }

    fn of(source: Cow<'static, str>) -> Self {
        let sha = redis::Script::new(&source).get_hash().to_owned();
        Self { source, sha }
    }
}

/// The scripts of the shapes in use, each composed once.
#[derive(Debug, Default)]
pub(crate) struct Composed {
    by_shape: Mutex<HashMap<Shape, Arc<Script>>>,
    /// The key of a clock that tests have put on the server.
    #[cfg(any(test, feature = "test-clock"))]
    clock: Option<String>,
}

impl Composed {
    #[cfg(any(test, feature = "test-clock"))]
    pub(crate) fn with_clock(key: &str) -> Self {
        Self {
            clock: Some(key.to_owned()),
            ..Self::default()
        }
    }

    /// The script of this shape; `None` if too many others are in use.
    pub(crate) fn script(&self, shape: Shape) -> Option<Arc<Script>> {
        let mut by_shape = self.by_shape.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(script) = by_shape.get(&shape) {
            return Some(Arc::clone(script));
        }
        if by_shape.len() >= MOST_SHAPES {
            return None;
        }
        let script = Arc::new(Script::of(self.timed(compose::compose(&shape))));
        by_shape.insert(shape, Arc::clone(&script));
        Some(script)
    }

    #[cfg(any(test, feature = "test-clock"))]
    fn timed(&self, source: String) -> Cow<'static, str> {
        match &self.clock {
            Some(key) => by_clock(&source, key),
            None => Cow::Owned(source),
        }
    }

    #[cfg(not(any(test, feature = "test-clock")))]
    #[expect(clippy::unused_self, reason = "tests have a clock of their own")]
    fn timed(&self, source: String) -> Cow<'static, str> {
        Cow::Owned(source)
    }
}

#[cfg(any(test, feature = "test-clock"))]
fn by_clock(source: &str, key: &str) -> Cow<'static, str> {
    let virtual_clock = format!(
        "local clock = {{ 0, redis.pcall('GET', '{key}') }} \
         for n = 0, 63 do \
           if type(clock[2]) ~= 'string' then clock[2] = redis.pcall('GET', '{key}{{' .. n .. '}}') end \
         end"
    );
    Cow::Owned(source.replace(CLOCK, &virtual_clock))
}

#[cfg(not(any(test, feature = "test-clock")))]
fn source() -> Cow<'static, str> {
    Cow::Borrowed(SOURCE)
}

#[cfg(any(test, feature = "test-clock"))]
fn source() -> Cow<'static, str> {
    named("TOLLGATE_SCRIPT", SOURCE)
}

/// In tests, the script in the file that this variable names, if it names one: mutants of the script need no new build.
#[cfg(any(test, feature = "test-clock"))]
#[expect(
    clippy::expect_used,
    reason = "a test that is to read another script fails without it"
)]
fn named(variable: &str, shipped: &'static str) -> Cow<'static, str> {
    std::env::var_os(variable).map_or(Cow::Borrowed(shipped), |file| {
        Cow::Owned(std::fs::read_to_string(file).expect("the variable names a script"))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tollgate_core::Unit;

    use super::*;

    #[test]
    fn the_time_is_asked_for_once() {
        for script in [SOURCE, DECIDE_FORM] {
            assert_eq!(script.matches("'TIME'").count(), 1);
            assert_eq!(script.matches(CLOCK).count(), 1);
        }
    }

    /// The numbers that requests state lead to the rules by their places in this list.
    #[test]
    fn each_number_of_a_rule_has_a_place_in_the_scripts_list() {
        let (_, list) = SOURCE.split_once("local RULES = {").expect("the list");
        let (list, _) = list.split_once('}').expect("its end");
        let rules: Vec<_> = list
            .split(',')
            .map(str::trim)
            .filter(|it| !it.is_empty())
            .collect();
        let at = |number: u8| rules.get(usize::from(number) - 1).copied();
        let shared = [Unit::TURNS_NUMBER, Unit::WARM_UP_NUMBER].map(at);
        assert_eq!(shared, [Some("gcra"); 2]);
        let period_us = 1;
        let of_units = [
            (Unit::Gcra, "gcra"),
            (
                Unit::FixedWindow {
                    period_us,
                    offset_us: 0,
                },
                "fixed_window",
            ),
            (Unit::SlidingWindow { period_us }, "sliding_window"),
            (
                Unit::RollingWindow {
                    period_us,
                    buckets: 2,
                },
                "rolling_window",
            ),
            (Unit::SlidingLog { period_us }, "sliding_log"),
            (
                Unit::IntervalRefill {
                    period_us,
                    offset_us: 0,
                },
                "interval_refill",
            ),
            (Unit::Held, "held"),
            (Unit::Ban, "ban"),
            (Unit::Once, "once"),
        ];
        for (unit, rule) in of_units {
            assert_eq!(at(unit.number()), Some(rule));
        }
        // The others are the calendar's and the two that share the states of GCRA.
        assert_eq!(rules.len(), of_units.len() + 3);
    }

    #[test]
    fn each_file_is_in_one_script_or_in_both_and_once() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/lua");
        let paths = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let mut lengths = [0; 2];
        for path in paths.filter(|path| path.extension().is_some_and(|kind| kind == "lua")) {
            let text = fs::read_to_string(&path).unwrap();
            if compose::SKELETONS.contains(&&text[..]) {
                continue;
            }
            let times = [SOURCE, DECIDE_FORM].map(|script| script.matches(&text).count());
            assert!(times.contains(&1), "{}", path.display());
            assert!(times.iter().all(|times| *times <= 1), "{}", path.display());
            for (length, times) in lengths.iter_mut().zip(times) {
                *length += times * text.len();
            }
        }
        assert_eq!([SOURCE, DECIDE_FORM].map(str::len), lengths);
    }

    /// The page says how each script is joined.
    #[test]
    fn the_page_of_the_scripts_joins_the_files_in_their_order() {
        let page = include_str!("../lua/README.md");
        let joined = page.split("```\ncat ").skip(1).map(|behind| {
            let (files, _) = behind.split_once('|').unwrap();
            let files = files.split_whitespace().filter(|file| *file != "\\");
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/lua/");
            let texts = files.map(|file| fs::read_to_string(format!("{folder}{file}")).unwrap());
            texts.collect::<String>()
        });
        assert_eq!(joined.collect::<Vec<_>>(), [SOURCE, DECIDE_FORM]);
    }

    #[test]
    fn they_are_portable() {
        for script in [SOURCE, DECIDE_FORM] {
            assert!(!script.starts_with("#!"));
            assert!(!script.contains("math.random"));
        }
    }
}
