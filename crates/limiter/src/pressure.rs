//! The load of this process as one number.

mod cgroup;
mod cpu;
mod gauge;
mod lag;
mod level;
mod memory;
mod sampler;
mod signal;

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, fs, io};

use tokio::runtime::Handle;

use self::cpu::Cpu;
pub use self::gauge::PressureGauge;
use self::lag::Lag;
pub(crate) use self::level::Level;
use self::memory::Memory;
use self::sampler::{SampleReport, Sampler, SmoothLevel};
pub(crate) use self::signal::Follower;
use self::signal::{HighestSignal, Signal};
use crate::ConfigError;

/// The load of this process between 0 and 1: a signal by which a limiter [sheds](crate::LimiterBuilder::shed) requests.
///
/// | signal | 1 is |
/// | --- | --- |
/// | the application's own, a [`PressureGauge`] | whatever the application says |
/// | [`Pressure::cpu`] | all processor time that the control group may use, or that the machine has |
/// | [`Pressure::memory`] | all memory that the control group may use, or that the machine has |
/// | [`Pressure::lag`] | a runtime that runs its tasks late by a stated time |
/// | `one.max(other)` | the higher of two |
///
/// A signal is measured in the background, by a thread or a task that is started once and ends with the last clone of the signal.
/// It is cheap to clone, and clones are one signal. A request reads what follows from it, which is one atomic load.
///
/// ```
/// use tollgate::{Pressure, PressureGauge};
///
/// let (queue, pool) = (PressureGauge::new(), PressureGauge::new());
/// let pressure = Pressure::from(&queue).max(&pool);
///
/// queue.set(0.4);
/// pool.set(0.75);
/// assert_eq!(pressure.level(), 0.75);
/// ```
#[derive(Clone)]
pub struct Pressure {
    signal: Arc<Signal>,
    /// The part that measures it, which ends with the last handle.
    _source: Option<Arc<dyn Any + Send + Sync>>,
}

/// The time between two samples of files. A control group's limit holds for each tenth of a second, so that less would be noise.
const PERIOD: Duration = Duration::from_millis(250);

fn read(path: &str) -> io::Result<String> {
    fs::read_to_string(path)
}

impl Pressure {
    fn new(signal: Arc<Signal>, source: Option<Arc<dyn Any + Send + Sync>>) -> Self {
        Self {
            signal,
            _source: source,
        }
    }

    /// The processor time that this process's control group uses, as a part of its limit. If it has none, it is the part that the
    /// whole machine uses.
    ///
    /// Limits of the groups around it count as well, and the level is that of the group with the least room. It is sampled four
    /// times a second by a thread, and each sample moves the level half of the way: after a second of full load it is above 0.9.
    /// The limit may change meanwhile. Should the files be gone one day, the level is 0, and the log says so.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Pressure, Quota, key};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// # if !std::path::Path::new("/proc/self/cgroup").exists() { return Ok(()); }
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("api", Quota::per_second(100)))
    ///     .classes(["critical", "normal", "batch"], key::Header::new("x-class"))
    ///     .shed(Pressure::cpu()?, [("batch", 0.7), ("normal", 0.9)])
    ///     .build()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no control group for processor time, neither of version 2 nor of version 1 (Linux mounts them at
    /// `/sys/fs/cgroup`), or if a file of it cannot be read. The error names the file.
    pub fn cpu() -> Result<Self, ConfigError> {
        Self::cpu_by(read)
    }

    /// The processor time as the files tell it that `read` reads.
    fn cpu_by(
        read: impl Fn(&str) -> io::Result<String> + Send + 'static,
    ) -> Result<Self, ConfigError> {
        let named = |reason| ConfigError::Pressure {
            signal: "cpu",
            reason,
        };
        let cpu = Cpu::find(&read).map_err(named)?;
        let mut before = (Instant::now(), cpu.sample(&read).map_err(named)?);
        let (mut smooth, mut fallible) = (SmoothLevel::default(), SampleReport::of("cpu"));
        Self::sampled("tollgate-cpu", Level::NONE, move || {
            let level = cpu.sample(&read).map(|sample| {
                let now = Instant::now();
                let level = sample.level_since(&before.1, now - before.0);
                before = (now, sample);
                smooth.add(level)
            });
            fallible.level(level)
        })
        .map_err(named)
    }

    /// The memory that this process's control group uses, as a part of its limit. If it has none, it is the part that the whole
    /// machine uses.
    ///
    /// File cache that the kernel gives up first (`inactive_file`) is not counted. `memory.high` is a limit like `memory.max`.
    /// Limits of the groups around it count as well, and the level is that of the group with the least room. It is sampled four
    /// times a second by a thread. Should the files be gone one day, the level is 0, and the log says so.
    ///
    /// ```
    /// use tollgate::{Limiter, Policy, Pressure, Quota, key};
    ///
    /// # fn main() -> Result<(), tollgate::ConfigError> {
    /// # if !std::path::Path::new("/proc/self/cgroup").exists() { return Ok(()); }
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("api", Quota::per_second(100)))
    ///     .classes(["critical", "batch"], key::Header::new("x-class"))
    ///     .shed(Pressure::cpu()?.max(Pressure::memory()?), [("batch", 0.9)])
    ///     .build()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no control group for memory, neither of version 2 nor of version 1, or if a file of it cannot be read. The error
    /// names the file.
    pub fn memory() -> Result<Self, ConfigError> {
        let named = |reason| ConfigError::Pressure {
            signal: "memory",
            reason,
        };
        let memory = Memory::find(&read).map_err(named)?;
        let first = memory.level(&read).map_err(named)?;
        let mut fallible = SampleReport::of("memory");
        Self::sampled("tollgate-memory", first, move || {
            fallible.level(memory.level(&read))
        })
        .map_err(named)
    }

    /// The lateness with which the present runtime runs its tasks: 1 if it is `full` or more.
    ///
    /// A task of its own sleeps for 50 ms and measures by how much it wakes too late, which is about as long as every other task
    /// waits to be run. Each sample moves the level half of the way. tokio's timer itself is late by up to two milliseconds, so
    /// that a `full` of less than twenty means little. If the runtime ends, the level is 0.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Limiter, Policy, Pressure, Quota, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate::ConfigError> {
    /// // Batch jobs are refused while tasks are run 70 ms late.
    /// let limiter = Limiter::builder()
    ///     .policy(Policy::new("api", Quota::per_second(100)))
    ///     .classes(["critical", "batch"], key::Header::new("x-class"))
    ///     .shed(Pressure::lag(Duration::from_millis(100))?, [("batch", 0.7)])
    ///     .build()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// If it is called outside of a tokio runtime, or if `full` is zero.
    pub fn lag(full: Duration) -> Result<Self, ConfigError> {
        let refuse = |reason: &str| {
            Err(ConfigError::Pressure {
                signal: "lag",
                reason: reason.to_owned(),
            })
        };
        let Ok(runtime) = Handle::try_current() else {
            return refuse("there is no tokio runtime here to be measured");
        };
        if full.is_zero() {
            return refuse("every task is late by zero");
        }
        let signal = Arc::default();
        let lag = Lag::start(&runtime, &signal, full);
        Ok(Self::new(signal, Some(Arc::new(lag))))
    }

    /// A signal that a thread samples. The thread begins with the second sample.
    fn sampled(
        name: &'static str,
        first: Level,
        sample: impl FnMut() -> Level + Send + 'static,
    ) -> Result<Self, String> {
        let signal: Arc<Signal> = Arc::default();
        signal.set(first);
        let sampler = Sampler::start(name, PERIOD, &signal, sample)
            .map_err(|error| format!("cannot start a thread that samples: {error}"))?;
        Ok(Self::new(signal, Some(Arc::new(sampler))))
    }

    /// The higher of this signal and another.
    ///
    /// ```
    /// use tollgate::{Pressure, PressureGauge};
    ///
    /// let (queue, pool) = (PressureGauge::new(), PressureGauge::new());
    /// let pressure = Pressure::from(&queue).max(&pool);
    /// pool.set(0.9);
    /// assert_eq!(pressure.level(), 0.9);
    /// ```
    #[must_use]
    pub fn max(self, other: impl Into<Self>) -> Self {
        let highest =
            HighestSignal::of([self, other.into()].map(|one| (Arc::clone(&one.signal), one)));
        Self::new(Arc::clone(highest.signal()), Some(highest))
    }

    /// The present level, from 0 to 1, for metrics. A signal of ours has the level of its last sample.
    ///
    /// ```
    /// use tollgate::{Pressure, PressureGauge};
    ///
    /// let queue = PressureGauge::new();
    /// queue.set(0.25);
    /// assert_eq!(Pressure::from(&queue).level(), 0.25);
    /// ```
    #[must_use]
    pub fn level(&self) -> f64 {
        self.signal.level().part()
    }

    /// Tells a follower of the present level, and of each that comes.
    pub(crate) fn tell(&self, follower: &Arc<impl Follower + 'static>) {
        self.signal.tell(follower);
    }
}

/// The signal that the gauge sets.
impl From<&PressureGauge> for Pressure {
    fn from(gauge: &PressureGauge) -> Self {
        Self::new(Arc::clone(gauge.signal()), None)
    }
}

/// The signal that the gauge sets.
impl From<PressureGauge> for Pressure {
    fn from(gauge: PressureGauge) -> Self {
        Self::from(&gauge)
    }
}

impl From<&Self> for Pressure {
    fn from(pressure: &Self) -> Self {
        pressure.clone()
    }
}

impl fmt::Debug for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pressure").field(&self.level()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::io::ErrorKind;
    use std::sync::Mutex;
    use std::thread;

    use super::*;

    /// The files of a control group of one processor, which uses an hour of it between two looks while it is busy.
    struct Folder {
        files: HashMap<&'static str, &'static str>,
        is_busy: bool,
        used_us: u64,
    }

    impl Folder {
        fn read(&mut self, path: &str) -> io::Result<String> {
            let text = self.files.get(path).ok_or(ErrorKind::NotFound)?;
            if path.ends_with("/cpu.stat") {
                self.used_us += if self.is_busy { 3_600_000_000 } else { 0 };
                return Ok(format!("usage_usec {}\n", self.used_us));
            }
            Ok((*text).to_owned())
        }
    }

    /// Waits for as long as a busy machine may need.
    fn eventually(what: &str, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_busy_group_raises_the_signal_an_idle_one_lowers_it_and_one_that_is_gone_counts_as_nothing()
    {
        // given the signal of a group that is idle
        let files = [
            ("/proc/self/cgroup", "0::/\n"),
            ("/sys/fs/cgroup/cgroup.controllers", "cpu\n"),
            ("/sys/fs/cgroup/cpu.max", "100000 100000\n"),
            ("/sys/fs/cgroup/cpu.stat", ""),
        ];
        let folder = Arc::new(Mutex::new(Folder {
            files: HashMap::from(files),
            is_busy: false,
            used_us: 0,
        }));
        let of_thread = Arc::clone(&folder);
        let pressure = Pressure::cpu_by(move |path| of_thread.lock().unwrap().read(path)).unwrap();
        assert_eq!(pressure.level(), 0.0);

        // when it is busy, idle, busy again and gone, then the signal follows
        folder.lock().unwrap().is_busy = true;
        eventually("it rises", || pressure.level() > 0.9);
        folder.lock().unwrap().is_busy = false;
        eventually("it falls", || pressure.level() < 0.1);
        folder.lock().unwrap().is_busy = true;
        eventually("it rises again", || pressure.level() > 0.9);
        folder.lock().unwrap().files.clear();
        eventually("it is gone", || pressure.level() == 0.0);
    }

    #[test]
    fn the_files_are_those_of_the_machine() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/pressure.rs");
        assert_eq!(read(path).unwrap(), include_str!("pressure.rs"));
    }

    #[test]
    fn no_group_is_refused_with_the_file_that_is_missing() {
        let refused = Pressure::cpu_by(|_| Err(ErrorKind::NotFound.into())).unwrap_err();
        let said = refused.to_string();
        assert!(
            said.starts_with("pressure: cpu: cannot read /proc/self/cgroup"),
            "{said}"
        );
    }

    #[test]
    fn the_higher_of_several_follows_each_of_them_up_and_down() {
        let gauges: [PressureGauge; 3] = Default::default();
        let [one, two, three] = &gauges;
        one.set(0.1);
        let highest = Pressure::from(one).max(two).max(three);
        assert_eq!(highest.level(), 0.1);

        for gauge in &gauges {
            gauge.set(0.9);
            assert_eq!(highest.level(), 0.9);
            gauge.set(0.0);
        }
        two.set(0.3);
        assert_eq!(highest.level(), 0.3);
    }

    #[test]
    fn a_signal_forgets_followers_that_are_gone() {
        let gauge = PressureGauge::new();
        for _ in 0..100 {
            let _gone = Pressure::from(&gauge).max(PressureGauge::new());
        }
        let kept = Pressure::from(&gauge).max(PressureGauge::new());

        assert_eq!(gauge.signal().followers(), 1);
        gauge.set(0.5);
        assert_eq!(kept.level(), 0.5);
    }
}
