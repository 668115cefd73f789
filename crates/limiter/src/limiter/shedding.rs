//! The classes that are refused under pressure, as the operator states them.

use std::collections::HashSet;
use std::time::Duration;

use super::shedder::{Shedder, Threshold};
use crate::key::Source;
use crate::pressure::Level;
use crate::{ConfigError, Pressure};

/// The classes that a limiter refuses under pressure, and what it tells them: see
/// [`LimiterBuilder::shed`](crate::LimiterBuilder::shed).
///
/// A list of classes and thresholds becomes one by itself. A class is refused while the level is at or above its threshold.
///
/// ```
/// use std::time::Duration;
/// use tollgate::{Limiter, Policy, PressureGauge, Quota, Shedding, key};
///
/// # fn main() -> Result<(), tollgate::ConfigError> {
/// let queue = PressureGauge::new();
/// let shedding = Shedding::at([("batch", 0.7), ("normal", 0.9)])
///     .margin(0.1)
///     .retry_after(Duration::from_secs(10))
///     .shadow();
/// let limiter = Limiter::builder()
///     .policy(Policy::new("api", Quota::per_second(100)))
///     .classes(["critical", "normal", "batch"], key::Header::new("x-class"))
///     .shed(&queue, shedding)
///     .build()?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it sheds nothing until a limiter has it"]
pub struct Shedding {
    thresholds: Vec<(String, f64)>,
    margin: f64,
    retry_after: Duration,
    is_shadow: bool,
}

/// The signal has to fall by so much before a class is let in again. Samples of an idle CPU differ by as much.
const MARGIN: f64 = 0.05;

/// A wait that is long enough for a burst to pass, and short enough for a client to keep its page open.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// A caller that is to wait for longer meets an outage.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// The most classes that a limiter has.
const MAX_CLASSES: usize = 64;

impl Shedding {
    /// Refuses each of these classes while the level is at or above its threshold, which is above 0 and at most 1.
    ///
    /// A less important class has the lower threshold, so that it is refused first. A class that is not named is never refused.
    ///
    /// ```
    /// use tollgate::Shedding;
    ///
    /// let shedding = Shedding::at([("batch", 0.7), ("normal", 0.9)]);
    /// ```
    pub fn at<C: Into<String>>(thresholds: impl IntoIterator<Item = (C, f64)>) -> Self {
        let thresholds = thresholds.into_iter();
        Self {
            thresholds: thresholds.map(|(class, at)| (class.into(), at)).collect(),
            margin: MARGIN,
            retry_after: RETRY_AFTER,
            is_shadow: false,
        }
    }

    /// Lets a class in again only when the level is below its threshold by more than this, 0.05 unless set. So a level that swings
    /// around a threshold does not refuse and admit in turns. It is less than the lowest threshold.
    ///
    /// ```
    /// use tollgate::Shedding;
    ///
    /// // Refused at 0.7, and let in again below 0.5.
    /// let shedding = Shedding::at([("batch", 0.7)]).margin(0.2);
    /// ```
    pub fn margin(mut self, margin: f64) -> Self {
        self.margin = margin;
        self
    }

    /// The wait that refused callers are told, 5 seconds unless set, and at most a day. Each is told a random time more, so that
    /// they do not all come back at once: up to as much again, or what `RateLimitLayer::jitter` says.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::Shedding;
    ///
    /// // `Retry-After` is 30 to 60.
    /// let shedding = Shedding::at([("batch", 0.7)]).retry_after(Duration::from_secs(30));
    /// ```
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = wait;
        self
    }

    /// Puts shedding on trial: it refuses no request, and the [observer](crate::Observer) hears of each that it would have
    /// refused.
    ///
    /// ```
    /// use tollgate::Shedding;
    ///
    /// let shedding = Shedding::at([("batch", 0.7)]).shadow();
    /// ```
    pub fn shadow(mut self) -> Self {
        self.is_shadow = true;
        self
    }
}

/// The classes with their thresholds.
impl<C: Into<String>, const N: usize> From<[(C, f64); N]> for Shedding {
    fn from(thresholds: [(C, f64); N]) -> Self {
        Self::at(thresholds)
    }
}

/// Everything that a builder was told about classes and pressure.
#[derive(Default)]
pub(super) struct SheddingTerms {
    classes: Vec<(Vec<String>, Source)>,
    stated: Vec<(OpenPressure, Shedding)>,
}

/// Begins to measure a signal.
pub(super) type OpenPressure = Box<dyn FnOnce() -> Result<Pressure, ConfigError> + Send + Sync>;

/// Classes and thresholds that go together, before their signal is measured.
pub(super) struct CheckedShedding {
    open: OpenPressure,
    shedder: Shedder,
}

impl SheddingTerms {
    pub(super) fn add_classes(&mut self, names: Vec<String>, source: Source) {
        self.classes.push((names, source));
    }

    pub(super) fn add(&mut self, open: OpenPressure, shedding: Shedding) {
        self.stated.push((open, shedding));
    }

    /// `None` if neither classes nor a signal were stated.
    pub(super) fn checked(self) -> Result<Option<CheckedShedding>, ConfigError> {
        let (mut classes, mut stated) = (self.classes.into_iter(), self.stated.into_iter());
        let ((names, source), (open, shedding)) = match (classes.next(), stated.next()) {
            (None, None) => return Ok(None),
            (None, Some(_)) => {
                return refuse("there are no classes to refuse; add `.classes([..], extractor)`");
            }
            (Some(_), None) => {
                return refuse(
                    "classes are named, and none is ever refused; add `.shed(pressure, [..])`",
                );
            }
            (Some(classes), Some(stated)) => (classes, stated),
        };
        if classes.next().is_some() {
            return refuse("`classes` is called twice; a limiter has one order of classes");
        }
        if stated.next().is_some() {
            return refuse("`shed` is called twice; `one.max(other)` is the higher of two signals");
        }
        check_names(&names)?;
        if let Some(reason) = source.flaw(None) {
            return refuse(format!("the class of a request: {reason}"));
        }
        let thresholds = shedding.thresholds(&names)?;
        let wait = shedding.retry_after;
        if wait.is_zero() {
            return refuse("`retry_after` is 0, so that refused callers come back at once");
        }
        if wait > MAX_RETRY_AFTER {
            return refuse("`retry_after` is longer than a day");
        }
        let shedder = Shedder::new(names, source, thresholds, wait, shedding.is_shadow);
        Ok(Some(CheckedShedding { open, shedder }))
    }
}

impl CheckedShedding {
    pub(super) fn start(self) -> Result<Shedder, ConfigError> {
        Ok(self.shedder.following((self.open)()?))
    }
}

fn check_names(names: &[String]) -> Result<(), ConfigError> {
    if names.is_empty() {
        return refuse("`classes` names none");
    }
    if names.len() > MAX_CLASSES {
        return refuse(format!(
            "there are {} classes; a limiter has at most {MAX_CLASSES}",
            names.len()
        ));
    }
    let mut known = HashSet::new();
    for name in names {
        if name.is_empty() || name.len() > tollgate_core::MAX_NAME_LEN {
            return refuse_class(name, "invalid name; use 1 to 64 bytes");
        }
        if !known.insert(name) {
            return refuse_class(name, "two classes have this name");
        }
    }
    Ok(())
}

impl Shedding {
    /// The threshold of each class, in their order.
    fn thresholds(&self, names: &[String]) -> Result<Vec<Option<Threshold>>, ConfigError> {
        if self.thresholds.is_empty() {
            return refuse("no class has a threshold, so that none is ever refused");
        }
        let margin = Level::of(self.margin).filter(|_| self.margin >= 0.0);
        let Some(margin) = margin else {
            return refuse(format!(
                "a margin of {} is not between 0 and 1",
                self.margin
            ));
        };
        let mut thresholds = vec![None; names.len()];
        for (class, at) in &self.thresholds {
            let Some(place) = names.iter().position(|name| name == class) else {
                return refuse_class(
                    class,
                    format!(
                        "there is no class of this name; there are {}",
                        names.join(", ")
                    ),
                );
            };
            let level = Level::of(*at).filter(|level| *at <= 1.0 && *level > Level::NONE);
            let Some(level) = level else {
                return refuse_class(
                    class,
                    format!("a threshold of {at} is not above 0 and at most 1"),
                );
            };
            if margin >= level {
                let reason = format!(
                    "a margin of {} is not below its threshold of {at}, so that it would never be let in again",
                    self.margin
                );
                return refuse_class(class, reason);
            }
            if thresholds[place]
                .replace(Threshold::new(level, margin))
                .is_some()
            {
                return refuse_class(class, "it has two thresholds");
            }
        }
        check_order(names, &thresholds)?;
        Ok(thresholds)
    }
}

/// Refuses thresholds that do not fall with the importance of their classes.
fn check_order(names: &[String], thresholds: &[Option<Threshold>]) -> Result<(), ConfigError> {
    let pairs = names.iter().zip(thresholds);
    for ((more, above), (less, below)) in pairs.clone().zip(pairs.skip(1)) {
        match (above, below) {
            (Some(above), Some(below)) if below.at() >= above.at() => {
                return refuse_class(
                    less,
                    format!("it is less important than {more:?}, and its threshold is not lower"),
                );
            }
            (Some(_), None) => {
                return refuse_class(
                    less,
                    format!(
                        "it is less important than {more:?}, which is refused, and has no threshold"
                    ),
                );
            }
            _ => {}
        }
    }
    Ok(())
}

fn refuse<T>(reason: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError::Shedding {
        reason: reason.into(),
    })
}

fn refuse_class<T>(class: &str, reason: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError::ShedClass {
        class: class.chars().take(tollgate_core::MAX_NAME_LEN).collect(),
        reason: reason.into(),
    })
}
