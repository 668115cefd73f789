//! The number of files that the program may have open: each connection is one. Most systems let a program have 1,024, unless it
//! asks for as many as it is allowed.

/// Asks for as many as the system allows.
#[cfg(unix)]
pub(super) fn allow_all() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let before = getrlimit(Resource::Nofile);
    let asked = Rlimit {
        current: before.maximum,
        maximum: before.maximum,
    };
    let outcome = setrlimit(Resource::Nofile, asked);
    // The system has no limit where it states no number.
    let number =
        |limit: Option<u64>| limit.map_or_else(|| "no limit".to_owned(), |it| it.to_string());
    let (before, now) = (
        number(before.current),
        number(getrlimit(Resource::Nofile).current),
    );
    match outcome {
        Ok(()) => tracing::info!(
            open_files = now,
            before,
            "files and connections may be open"
        ),
        Err(error) => tracing::warn!(
            %error,
            open_files = now,
            "the system allows no more files and connections"
        ),
    }
}

/// No other system has this limit.
#[cfg(not(unix))]
pub(super) fn allow_all() {}
