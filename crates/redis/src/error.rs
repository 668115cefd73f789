//! Our errors, made of those of the library and the server.

use std::error::Error;
use std::fmt;

use redis::{ErrorKind, RedisError};
use tollgate_core::{BackendError, FailureKind};

#[cfg(feature = "tls")]
use crate::trust;

/// The reason why a backend could not be set up.
///
/// Its text is one sentence that names the setting to change, and never holds a password.
///
/// ```no_run
/// use tollgate::RedisBackend;
///
/// # async fn example() {
/// match RedisBackend::connect("redis://127.0.0.1/").await {
///     Ok(backend) => drop(backend),
///     Err(error) if error.kind().is_none() => eprintln!("wrong setting: {error}"),
///     Err(error) => eprintln!("Redis is not there: {error}"),
/// }
/// # }
/// ```
pub struct ConnectError {
    message: String,
    setting: Option<&'static str>,
    failure: Option<BackendError>,
}

impl ConnectError {
    pub(crate) fn setting(name: &'static str, problem: &str) -> Self {
        Self {
            message: format!("the Redis backend's {name} {problem}"),
            setting: Some(name),
            failure: None,
        }
    }

    /// The server does not decide.
    pub(crate) fn failed(failure: BackendError) -> Self {
        let place = failure.place().map(|place| format!(" at {place}"));
        let message = format!(
            "cannot connect to Redis{}: {failure}",
            place.unwrap_or_default()
        );
        Self {
            message,
            setting: None,
            failure: Some(failure),
        }
    }

    /// The kind of failure that kept us from the server; `None` if a setting was invalid.
    #[must_use]
    pub fn kind(&self) -> Option<FailureKind> {
        self.failure.as_ref().map(BackendError::kind)
    }

    /// The setting that was invalid, as the message names it: `url`, `prefix`, `certificate_authority` and others.
    ///
    /// ```
    /// use tollgate::RedisBackend;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let error = RedisBackend::connect("127.0.0.1:6379").await.unwrap_err();
    /// assert_eq!(error.setting_name(), Some("url"));
    /// # }
    /// ```
    #[must_use]
    pub fn setting_name(&self) -> Option<&str> {
        self.setting
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Writes the sentence of `Display`: a `main` that returns the error shows this.
impl fmt::Debug for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // The message already holds the failure itself.
        self.failure.as_ref().and_then(Error::source)
    }
}

/// The error of a call of the script on a connection that has worked. It never holds a text of the server's: that may name
/// keys, and keys are identities.
pub(crate) fn failure(error: &RedisError) -> BackendError {
    if error.code().is_some() {
        return refusal("EVALSHA", error);
    }
    #[cfg(feature = "tls")]
    if let Some(failure) = trust::failure(error) {
        return failure;
    }
    BackendError::new(
        FailureKind::Unreachable,
        "the connection was closed while it was in use: the server has restarted or closed it (CLIENT KILL, `timeout`), or the network did",
    )
}

/// The error of a command that failed while a connection was made.
pub(crate) fn refusal(command: &str, error: &RedisError) -> BackendError {
    let Some(code) = code(error) else {
        return local(error);
    };
    let (kind, what) = match code {
        "READONLY" => (FailureKind::ReadOnly, "the server is a replica"),
        "OOM" => (
            FailureKind::OutOfMemory,
            "raise maxmemory, or let nothing else live there",
        ),
        "LOADING" => (FailureKind::Unready, "the server still loads its data"),
        "BUSY" => (FailureKind::Unready, "the server is busy with a script"),
        "MASTERDOWN" => (
            FailureKind::Unready,
            "the server is a replica that has lost its master",
        ),
        "MISCONF" => (
            FailureKind::Unready,
            "the server cannot persist and refuses writes",
        ),
        "NOREPLICAS" => (
            FailureKind::Unready,
            "the server has too few replicas to write",
        ),
        "CLUSTERDOWN" | "TRYAGAIN" => (
            FailureKind::Unready,
            "no node can decide about this key now",
        ),
        "NOAUTH" => (
            FailureKind::Unauthenticated,
            "the server asks for a password: put it into the URL, or set it",
        ),
        "WRONGPASS" => (FailureKind::Unauthenticated, "check user name and password"),
        "NOPERM" => return forbidden(command, error.detail().unwrap_or_default()),
        "DENIED" => (
            FailureKind::Forbidden,
            "the server is in protected mode and serves its own host only: give it a password, or `bind` it",
        ),
        "NOSCRIPT" => (
            FailureKind::ScriptFailed,
            "the server forgets the script as soon as it is loaded",
        ),
        "MOVED" | "ASK" | "CROSSSLOT" => (
            FailureKind::WrongServer,
            "the server is part of a cluster: set it up with RedisBackend::cluster",
        ),
        _ => return general(command, code, error.detail().unwrap_or_default()),
    };
    BackendError::new(kind, format!("{what} ({code})"))
}

/// A right that our user lacks. The server names the command, which is not an identity, and since Redis 7.2 the user.
fn forbidden(command: &str, said: &str) -> BackendError {
    let ours = right(command);
    // Before Redis 7.0 the rule for a subcommand names its command alone.
    let named = lacking(said).filter(|_| {
        let (of_all, _) = ours.split_once('|').unwrap_or_default();
        !said.contains(&format!("run the '{of_all}'"))
    });
    let detail =
        named.unwrap_or_else(|| format!("our user may not run {command}: add +{ours} (NOPERM)"));
    BackendError::new(FailureKind::Forbidden, detail)
}

/// The right that our user lacks, as an access rule writes it. Nothing if the error is not about rights.
pub(crate) fn missing_right(command: &str, error: &RedisError, prefix: &str) -> Option<String> {
    let refusal = refusal(command, error);
    if refusal.kind() != FailureKind::Forbidden || code(error) == Some("DENIED") {
        return None;
    }
    let said = error.detail().unwrap_or_default();
    let is_key = is_about_keys(said);
    let named =
        (refusal.detail().split_once("add +")).and_then(|(_, right)| right.split(' ').next());
    Some(match named {
        _ if is_key => format!("~{prefix}:*"),
        Some(right) => format!("+{right}"),
        // Within a script a server before 7.2 does not name it.
        None if code(error) != Some("NOPERM") => return None,
        None => format!("+{}", right(command)),
    })
}

/// The text of a server before 7.0 when it refuses a command of a script, without the position in the script.
fn within_script(said: &str) -> &str {
    let behind = said
        .starts_with("Error running script")
        .then(|| said.split_once(&format!("{SCRIPT_S_OWN} ")));
    let (_, line) = behind.flatten().unwrap_or(("", said));
    match line.split_once(": ") {
        Some((number, of_command)) if number.parse::<u32>().is_ok() => of_command,
        _ => said,
    }
}

/// The text before the line of a script. It stands in a code's place if the script returns the error of one of its commands.
const SCRIPT_S_OWN: &str = "@user_script:";

/// The missing right, if the server names it.
fn lacking(said: &str) -> Option<String> {
    let named = said
        .split_once("run the '")
        .and_then(|(_, behind)| behind.split_once('\''))
        .map(|(named, _)| named)
        .filter(|named| {
            let is_name = |c: char| c.is_ascii_alphanumeric() || "|-".contains(c);
            !named.is_empty() && named.len() < 40 && named.chars().all(is_name)
        });
    match named {
        Some(named) => Some(format!(
            "our user may not run {}: add +{named} (NOPERM)",
            named.to_uppercase().replace('|', " ")
        )),
        None => is_about_keys(said).then(|| KEYS.to_owned()),
    }
}

const KEYS: &str =
    "our user may not use our keys: add `~tollgate:*`, or the prefix that was set (NOPERM)";

fn is_about_keys(said: &str) -> bool {
    // Before Redis 7.2, since then, and with the key named.
    ["one of the keys", "access a key", "access the '"]
        .into_iter()
        .any(|words| said.contains(words))
}

/// The name of a command in an access rule.
fn right(command: &str) -> String {
    command.to_lowercase().replace(' ', "|")
}

/// Errors without a code of their own. They are known by the beginning of their text, which is not repeated.
fn general(command: &str, code: &str, said: &str) -> BackendError {
    let said = within_script(said);
    let begins = |text: &str| said.starts_with(text);
    // The latter since Redis 7.2.
    let is_right = begins("The user executing the script") || begins("ACL failure in script");
    let (kind, what) = if is_right && let Some(lacking) = lacking(said) {
        return BackendError::new(FailureKind::Forbidden, lacking);
    } else if is_right {
        // A server before 7.2 does not name the right. The next connection asks for each.
        (
            FailureKind::Forbidden,
            "our user may not run a command of the script: compare its rights with those that the documentation names",
        )
    } else if begins("Unknown Redis command called from") {
        (
            FailureKind::WrongServer,
            "a command of the script is renamed or disabled: give it back its name",
        )
    } else if begins("unknown command") || begins("unknown subcommand") {
        return missing(command);
    } else if begins("max number of clients") {
        (
            FailureKind::Unready,
            "the server has as many clients as its `maxclients` allows",
        )
    } else if begins("DB index is out of range") || begins("invalid DB index") {
        (
            FailureKind::WrongServer,
            "the server has no database of this number: look at the URL, and at `databases` on the server",
        )
    } else if begins("SELECT is not allowed in cluster mode") {
        (
            FailureKind::WrongServer,
            "the server is part of a cluster: set it up with RedisBackend::cluster",
        )
    } else if begins("This instance has cluster support disabled") {
        (
            FailureKind::WrongServer,
            "the server is not part of a cluster: set it up with RedisBackend::connect",
        )
    } else if begins("AUTH <password> called without any password configured") {
        (
            FailureKind::Unauthenticated,
            "a password is set here, and the server has none for this user",
        )
    } else {
        let is_code =
            (1..=20).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_uppercase());
        let code = if is_code {
            code
        } else {
            "an error without a code"
        };
        return BackendError::new(
            FailureKind::ScriptFailed,
            format!("{command} failed on the server ({code}): its log says why"),
        );
    };
    BackendError::new(kind, what)
}

/// The error of a command that the server does not have.
pub(crate) fn missing(command: &str) -> BackendError {
    BackendError::new(
        FailureKind::WrongServer,
        format!(
            "the server has no {command}: it is renamed or disabled there, or the server is older than Redis 6.2"
        ),
    )
}

/// The server's code for the failure. Before Redis 7 the error of a command in a script comes in a text of its own, with the
/// code in it.
fn code(error: &RedisError) -> Option<&str> {
    let outer = error.code()?;
    if outer == SCRIPT_S_OWN {
        return Some("ERR");
    }
    let inner = error.detail().and_then(|detail| {
        let (_, command) = detail
            .starts_with("Error running script")
            .then(|| detail.split_once(": -"))??;
        command.split(' ').next()
    });
    Some(inner.unwrap_or(outer))
}

/// Errors of the library and of the network while a connection is made.
fn local(error: &RedisError) -> BackendError {
    #[cfg(feature = "tls")]
    if let Some(failure) = trust::failure(error) {
        return failure;
    }
    let (kind, what) = match error.kind() {
        ErrorKind::Parse => (
            FailureKind::WrongServer,
            "the server does not speak Redis's protocol: check host and port, and whether it asks for TLS (rediss://)",
        ),
        _ if error.is_connection_refusal() => (
            FailureKind::Unreachable,
            "nothing listens there: look at host and port, and whether the server runs",
        ),
        _ if error.is_connection_dropped() => (
            FailureKind::Unreachable,
            "the connection was closed before it was greeted: look at host and port, whether the server asks for TLS (rediss://), and whether it takes more clients",
        ),
        _ => (
            FailureKind::Unreachable,
            "the connection failed: look at host and port, and whether the host's name is known",
        ),
    };
    BackendError::new(kind, what)
}

/// A copy of the error, for another caller.
pub(crate) fn again(error: &BackendError) -> BackendError {
    let same = BackendError::new(error.kind(), error.detail());
    match error.place() {
        Some(place) => same.at(place),
        None => same,
    }
}

/// Says whether the error comes from the server's present role, so that a new connection may find another server.
pub(crate) fn wants_reconnect(error: &RedisError) -> bool {
    match code(error) {
        // A new connection tells which right our user lacks.
        Some("ERR") => refusal("", error).kind() == FailureKind::Forbidden,
        Some(code) => matches!(
            code,
            "READONLY" | "MASTERDOWN" | "LOADING" | "NOAUTH" | "WRONGPASS" | "NOPERM"
        ),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    /// The texts of Redis 6.2 and 7.0, and of Redis 8.0 and Valkey 8.1.
    #[test]
    fn a_right_that_is_missing_is_named_whichever_words_the_server_has_for_it() {
        let time = "our user may not run TIME: add +time (NOPERM)";
        let behind = "script: 104ae65debf45156ded1e8e613705534c8e62c17, on @user_script:1.";
        for (said, told) in [
            (
                "this user has no permissions to run the 'time' command or its subcommand",
                time,
            ),
            (
                "This user has no permissions to run the 'time' command",
                time,
            ),
            (
                "User gate has no permissions to run the 'time' command",
                time,
            ),
            (
                "this user has no permissions to access one of the keys used as arguments",
                KEYS,
            ),
            ("No permissions to access a key", KEYS),
            (
                "something new",
                "our user may not run TIME: add +time (NOPERM)",
            ),
        ] {
            let error = forbidden("TIME", said);
            assert_eq!(error.detail(), told, "{said}");
            assert_eq!(error.kind(), FailureKind::Forbidden);
        }
        for script in ["script", "script|load"] {
            let said = format!("this user has no permissions to run the '{script}' command");
            assert_eq!(
                forbidden("SCRIPT LOAD", &said).detail(),
                "our user may not run SCRIPT LOAD: add +script|load (NOPERM)"
            );
        }
        let unnamed = "our user may not run a command of the script: compare its rights with those that the documentation names";
        for (said, told) in [
            (
                "ACL failure in script: User gate has no permissions to run the 'time' command",
                time,
            ),
            (
                "ACL failure in script: No permissions to access a key",
                KEYS,
            ),
            (
                "The user executing the script can't access at least one of the keys mentioned in the command arguments",
                KEYS,
            ),
            (
                "The user executing the script can't run this command or subcommand",
                unnamed,
            ),
            (
                "Error running script (call to f_104ae65): @user_script:1: @user_script: 1: The user executing the script can't run this command or subcommand",
                unnamed,
            ),
            (
                "1: The user executing the script can't run this command or subcommand",
                unnamed,
            ),
            (
                "Error running script (call to f_104ae65): @user_script:1: @user_script: 1: The user executing the script can't access at least one of the keys mentioned in the command arguments",
                KEYS,
            ),
        ] {
            let error = general("EVALSHA", "ERR", &format!("{said} {behind}"));
            assert_eq!(error.kind(), FailureKind::Forbidden, "{said}");
            assert_eq!(error.detail(), told, "{said}");
        }
    }

    /// Keys are identities, and a server names them in several of its errors.
    #[test]
    fn no_text_of_the_server_s_is_repeated_whatever_its_code_is() {
        let codes = [
            "ERR",
            "READONLY",
            "OOM",
            "LOADING",
            "BUSY",
            "MASTERDOWN",
            "MISCONF",
            "NOREPLICAS",
            "CLUSTERDOWN",
            "TRYAGAIN",
            "NOAUTH",
            "WRONGPASS",
            "NOPERM",
            "DENIED",
            "NOSCRIPT",
            "MOVED",
            "ASK",
            "CROSSSLOT",
            "WRONGTYPE",
            "alice",
        ];
        let texts = [
            "alice",
            "tollgate:api:0/g:=alice is at 192.0.2.1",
            "No permissions to access the 'tollgate:api:0/g:=alice' key",
            "User alice has no permissions to access the 'tollgate:api:0/g:=alice' key",
            "User alice has no permissions to run the 'get' command",
            "this user has no permissions to run the 'tollgate:api:0/g:=alice' command",
            "The user executing the script can't access =alice",
            "ACL failure in script: No permissions to access the 'tollgate:api:0/g:=alice' key",
            "unknown command 'alice', with args beginning with: 'tollgate:api:0/g:=alice'",
            "Error running script (call to f_0): @user_script:1: -WRONGTYPE tollgate:api:0/g:=alice",
            "max number of clients reached by alice",
        ];
        for code in codes {
            for text in texts {
                let said = format!("-{code} {text}\r\n");
                let said = redis::parse_redis_value(said.as_bytes()).unwrap();
                let error = said.extract_error().unwrap_err();
                for told in [refusal("EVALSHA", &error), failure(&error)] {
                    let said = format!("{told} {told:?} {}", told.detail());
                    for word in ["alice", "192.0.2.1"] {
                        assert!(!said.contains(word), "{code} {text}: {said}");
                    }
                }
            }
        }
    }
}
