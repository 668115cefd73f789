//! A configuration file that a limiter follows while it runs.
//!
//! The file is looked at every two seconds and on `SIGHUP`, and compared by its content: events of a file system do not follow the
//! symbolic links through which Kubernetes mounts a file. A configuration is read, built and checked as a whole before it replaces
//! the policies; if anything is wrong, those before stay.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;

use super::reload_error::ReloadError;
use super::words::changes;
use super::{LimiterConfig, Registry};
use crate::{ConfigError, Limiter, LimiterBuilder};

/// The time between two looks at the file. Kubernetes takes up to a minute to mount a change, so a shorter one would not be felt.
const INTERVAL: Duration = Duration::from_secs(2);

/// The time for which a new text must stay as it is before it replaces the one before.
const SETTLING: Duration = Duration::from_millis(100);

/// The longest file that is read: more than ten thousand policies.
const MAX_BYTES: u64 = 4 << 20;

/// A configuration file whose policies a limiter is to have, also after the file has changed. `read` makes a configuration of its
/// text, whatever its format is.
///
/// ```no_run
/// use tollgate::{RateLimitLayer, config};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut file = config::watch("limits.toml", |text| toml::from_str(text));
/// // A file that is wrong now is an error, and the service does not start.
/// let limiter = file.load()?.build()?;
/// // From here on, a file that is wrong changes nothing.
/// let _watch = file.follow(&limiter);
///
/// let layer = RateLimitLayer::new(&limiter);
/// // Serve until the end.
/// # Ok(()) }
/// ```
pub fn watch<E: fmt::Display>(
    path: impl Into<PathBuf>,
    read: impl Fn(&str) -> Result<LimiterConfig, E> + Send + Sync + 'static,
) -> ConfigFile {
    ConfigFile {
        path: path.into(),
        read: Box::new(move |text| read(text).map_err(|error| error.to_string())),
        registry: Registry::new(),
        adopt: Box::new(|_limiter| {}),
        loaded: FileContent::default(),
    }
}

type ReadText = dyn Fn(&str) -> Result<LimiterConfig, String> + Send + Sync;

/// A configuration file, to be loaded and then followed: see [`watch`].
///
/// ```
/// use tollgate::config::{self, Registry};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("limits.toml");
/// std::fs::write(&path, r#"policies = [{ name = "api", quotas = "10/s", when = ["is-external"] }]"#)?;
///
/// let registry = Registry::new().register_condition("is-external", |_| true);
/// let mut file = config::watch(&path, |text| toml::from_str(text)).registry(registry);
/// let limiter = file.load()?.build()?;
/// assert!(limiter.policy("api").is_some());
/// # Ok(()) }
/// ```
#[must_use = "a file is followed by `follow`"]
pub struct ConfigFile {
    path: PathBuf,
    read: Box<ReadText>,
    registry: Registry,
    adopt: Box<dyn Fn(&Limiter) + Send + Sync>,
    loaded: FileContent,
}

/// The latest content of the file.
#[derive(Default)]
struct FileContent {
    /// The text that was read last, right or wrong.
    text: Option<String>,
    /// The configuration that holds.
    config: LimiterConfig,
    /// The fault of that text.
    fault: Option<ReloadError>,
    /// The reason why the latest look could not read the file.
    unreadable: Option<ReloadError>,
}

impl ConfigFile {
    /// Sets the closures and lists that the file may name.
    pub fn registry(mut self, registry: Registry) -> Self {
        self.registry = registry;
        self
    }

    /// Calls this each time when the policies of a text have taken effect: now by [`start`](Self::start), and later when the file
    /// has changed. What the file says besides policies takes effect here.
    #[doc(hidden)]
    pub fn adopting(mut self, adopt: impl Fn(&Limiter) + Send + Sync + 'static) -> Self {
        self.adopt = Box::new(adopt);
        self
    }

    /// Reads the file now. The application adds its backend to the builder.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or its content makes no sense: with its path and, as far as they are known, line, policy and
    /// field.
    pub fn load(&mut self) -> Result<LimiterBuilder, ReloadError> {
        let text = text_of(&self.path)?;
        let (config, builder) = self.build(&text)?;
        self.loaded = FileContent {
            text: Some(text),
            config,
            ..FileContent::default()
        };
        Ok(builder)
    }

    /// Follows the file from now on: each change replaces the policies of this limiter and its clones. It ends when the [`Watch`]
    /// is dropped.
    ///
    /// A task of the present tokio runtime looks at the file every two seconds and on `SIGHUP`, which no longer ends the process.
    /// The runtime needs its timer and, for the signal, its IO. Outside of a runtime only [`Watch::reload`] looks at the file.
    ///
    /// Replace the file as a whole, by renaming another one to its name: a look while it is written would find a part of it.
    ///
    /// ```no_run
    /// use tollgate::config;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut file = config::watch("/etc/shop/limits.json", |text| serde_json::from_str(text));
    /// let limiter = file.load()?.build()?;
    /// let watch = file.follow(&limiter);
    /// # Ok(()) }
    /// ```
    pub fn follow(self, limiter: &Limiter) -> Watch {
        let (limiter, loaded) = (limiter.clone(), Mutex::default());
        let mut follower = Follower {
            file: self,
            limiter,
            loaded,
        };
        follower.loaded = Mutex::new(std::mem::take(&mut follower.file.loaded));
        let follower = Arc::new(follower);
        match Handle::try_current() {
            Ok(runtime) => {
                drop(runtime.spawn(look_again_and_again(Arc::downgrade(&follower))));
            }
            Err(_none) => tracing::warn!(
                file = %follower.file.path.display(),
                "outside of a tokio runtime the configuration is read again only when `Watch::reload` is called"
            ),
        }
        Watch(follower)
    }

    /// Reads the file now and builds its limiter, with what `finish` adds to the builder. A conflict between policies is an error
    /// with its line here, as one in a policy is.
    ///
    /// ```
    /// use tollgate::{MemoryBackend, config};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("limits.toml");
    /// std::fs::write(&path, "policies = [{ name = 'api', quotas = '10/s' }]")?;
    /// let mut file = config::watch(&path, |text| toml::from_str(text));
    /// let limiter = file.start(|builder| builder.backend(MemoryBackend::new()))?;
    /// assert_eq!(limiter.policies().len(), file.config().policies.len());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load), and if the policies do not go together.
    pub fn start(
        &mut self,
        finish: impl FnOnce(LimiterBuilder) -> LimiterBuilder,
    ) -> Result<Limiter, ReloadError> {
        let builder = self.load()?;
        let limiter = finish(builder).build().map_err(|error| {
            let text = self.loaded.text.as_deref().unwrap_or_default();
            ReloadError::of_text(&self.path, text, error.to_string())
        })?;
        (self.adopt)(&limiter);
        Ok(limiter)
    }

    /// The configuration that was loaded last; an empty one before that.
    ///
    /// ```
    /// use tollgate::config;
    ///
    /// let file = config::watch("limits.toml", |text| toml::from_str(text));
    /// assert!(file.config().policies.is_empty());
    /// ```
    #[must_use]
    pub fn config(&self) -> &LimiterConfig {
        &self.loaded.config
    }

    /// The words in which the log would tell the change from the limiter that this file has made to the one that another file has
    /// made. The policies stay as they are: use it to look at a change before you make it.
    ///
    /// ```
    /// use tollgate::config;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let (old, new) = (folder.path().join("old.toml"), folder.path().join("new.toml"));
    /// std::fs::write(&old, "policies = [{ name = 'api', quotas = '10/s' }]")?;
    /// std::fs::write(&new, "policies = [{ name = 'api', quotas = '10/s', shadow = true }]")?;
    /// let mut old = config::watch(&old, |text| toml::from_str(text));
    /// let mut new = config::watch(&new, |text| toml::from_str(text));
    /// let (before, after) = (old.start(|builder| builder)?, new.start(|builder| builder)?);
    /// assert_eq!(
    ///     old.changes_to(&before, &new, &after),
    ///     ["policy api: enforced → on trial; takes effect at once; callers keep what they have used"]
    /// );
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn changes_to(&self, before: &Limiter, next: &Self, after: &Limiter) -> Vec<String> {
        let (was, is) = (self.config(), next.config());
        changes(was, is, &next.path, before, &after.policies())
    }

    fn build(&self, text: &str) -> Result<(LimiterConfig, LimiterBuilder), ReloadError> {
        let wrong = |message: String| ReloadError::of_text(&self.path, text, message);
        let config = (self.read)(text).map_err(wrong)?;
        let built = config.build(&self.registry);
        let builder = built.map_err(|error| wrong(error.to_string()))?;
        Ok((config, builder))
    }
}

/// Says whether nobody is writing the file any more.
fn is_settled(path: &Path, text: &str) -> bool {
    thread::sleep(SETTLING);
    text_of(path).is_ok_and(|again| again == text)
}

/// The text of a file, wherever its links lead now.
fn text_of(path: &Path) -> Result<String, ReloadError> {
    let read = || {
        let mut text = String::new();
        // To open a named pipe would wait for its writer, and hold up following and the end of the process.
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"));
        }
        let file = File::open(path)?;
        let read = file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
        if u64::try_from(read).unwrap_or(u64::MAX) > MAX_BYTES {
            let long = format!("longer than {MAX_BYTES} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, long));
        }
        Ok(text)
    };
    read().map_err(|error: io::Error| ReloadError::unreadable(path, &error))
}

/// A file that a limiter follows, until this is dropped.
///
/// ```
/// use tollgate::config;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("limits.toml");
/// std::fs::write(&path, "policies = [{ name = 'api', quotas = '10/s' }]")?;
/// let mut file = config::watch(&path, |text| toml::from_str(text));
/// let limiter = file.load()?.build()?;
/// let watch = file.follow(&limiter);
///
/// std::fs::write(&path, "policies = [{ name = 'api', quotas = '100/s' }]")?;
/// // A handler for operators does not wait for the next look at the file.
/// assert_eq!(watch.reload()?, ["policy api: 10/s → 100/s; takes effect at once; callers keep what they have used"]);
///
/// std::fs::write(&path, "policies = [{ name = 'api', quotas = '100/minit' }]")?;
/// let wrong = watch.reload().unwrap_err();
/// assert_eq!((wrong.line(), wrong.policy(), wrong.field()), (Some(1), Some("api"), Some("quotas")));
/// # Ok(()) }
/// ```
#[must_use = "the file is followed until this is dropped"]
pub struct Watch(Arc<Follower>);

struct Follower {
    file: ConfigFile,
    limiter: Limiter,
    loaded: Mutex<FileContent>,
}

impl Watch {
    /// Looks at the file now, and says in words what it has changed: nothing if its content is that of before.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or its content makes no sense. Then the policies stay as they were. The error is given until
    /// the content has changed again.
    pub fn reload(&self) -> Result<Vec<String>, ReloadError> {
        self.0.look()
    }

    /// The reason why the file as the latest look found it does not hold, if there is one. It does not look itself.
    ///
    /// ```
    /// use tollgate::config::Watch;
    ///
    /// /// For a page about the service.
    /// fn words(watch: &Watch) -> String {
    ///     watch.fault().map_or_else(|| "the file holds".to_owned(), |fault| fault.to_string())
    /// }
    /// ```
    #[must_use]
    pub fn fault(&self) -> Option<ReloadError> {
        self.0.fault()
    }
}

impl Follower {
    fn look(&self) -> Result<Vec<String>, ReloadError> {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let file = self.file.path.display();
        let text = match text_of(&self.file.path) {
            Ok(text) => text,
            Err(error) => {
                // Told once. What is known of its text stays known.
                if loaded.unreadable.as_ref() != Some(&error) {
                    self.limiter.refuses_replacement();
                    let error = error.message();
                    tracing::error!(%file, error, "the configuration cannot be read; the one before stays");
                }
                loaded.unreadable = Some(error.clone());
                return Err(error);
            }
        };
        if loaded.unreadable.take().is_some() {
            tracing::info!(%file, "the configuration can be read again");
            // Metrics hear of it when what holds has been applied anew.
            if loaded.fault.is_none() {
                loaded.text = None;
            }
        }
        if loaded.text.as_ref() == Some(&text) {
            return loaded.fault.clone().map_or(Ok(Vec::new()), Err);
        }
        if !is_settled(&self.file.path, &text) {
            // The next look finds the rest.
            return Ok(Vec::new());
        }
        let applied = self.apply(&loaded.config, &text);
        loaded.text = Some(text);
        match applied {
            Ok((config, changed)) => {
                (loaded.config, loaded.fault) = (config, None);
                for change in &changed {
                    tracing::info!(%file, "{change}");
                }
                Ok(changed)
            }
            Err(error) => {
                if loaded.fault.as_ref() != Some(&error) {
                    self.limiter.refuses_replacement();
                    tracing::error!(
                        %file,
                        line = error.line(),
                        policy = error.policy(),
                        field = error.field(),
                        error = error.message(),
                        "the configuration is refused; the one before stays"
                    );
                }
                loaded.fault = Some(error.clone());
                Err(error)
            }
        }
    }

    fn fault(&self) -> Option<ReloadError> {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = loaded.unreadable.as_ref().or(loaded.fault.as_ref());
        fault.cloned()
    }

    fn apply(
        &self,
        before: &LimiterConfig,
        text: &str,
    ) -> Result<(LimiterConfig, Vec<String>), ReloadError> {
        let (config, builder) = self.file.build(text)?;
        let wrong =
            |error: ConfigError| ReloadError::of_text(&self.file.path, text, error.to_string());
        let policies = builder.into_policies().map_err(wrong)?;
        let changed = changes(before, &config, &self.file.path, &self.limiter, &policies);
        // It counts the refusals of its own, and the caller those of the file.
        let replaced = self.limiter.replace_uncounted(policies);
        replaced.map_err(wrong)?;
        (self.file.adopt)(&self.limiter);
        Ok((config, changed))
    }
}

/// Looks at the file until the watch is dropped.
async fn look_again_and_again(follower: Weak<Follower>) {
    #[cfg(unix)]
    let mut hang_up = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok();
    loop {
        #[cfg(unix)]
        match &mut hang_up {
            Some(hang_up) => drop(tokio::time::timeout(INTERVAL, hang_up.recv()).await),
            None => tokio::time::sleep(INTERVAL).await,
        }
        #[cfg(not(unix))]
        tokio::time::sleep(INTERVAL).await;
        let Some(follower) = follower.upgrade() else {
            return;
        };
        // A file on a network may take its time. The outcome stands in the log.
        let looked = tokio::task::spawn_blocking(move || follower.look().is_ok());
        drop(looked.await);
    }
}

impl fmt::Debug for ConfigFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigFile")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("file", &self.0.file)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_changes_while_it_is_read_is_left_for_the_next_look() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("limits.toml");
        fs::write(&path, "whole").unwrap();
        assert!(is_settled(&path, "whole"));
        assert!(!is_settled(&path, "who"));
    }
}
