//! The log of a test.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, Once};

use tracing::Level;
use tracing::subscriber::DefaultGuard;

/// Collects the log of this thread.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Listens until the guard is dropped.
    #[must_use]
    pub fn listen(&self) -> DefaultGuard {
        self.listen_from(Level::INFO)
    }

    /// Listens to this level and all above it, until the guard is dropped.
    #[must_use]
    pub fn listen_from(&self, level: Level) -> DefaultGuard {
        // With a single listener `tracing` asks the first thread at a place in the code whether it listens there, and keeps the
        // answer for all threads. So there is another listener, for threads that have none.
        static EVERYWHERE: Once = Once::new();
        EVERYWHERE.call_once(|| {
            let subscriber = tracing_subscriber::fmt().with_writer(io::sink).finish();
            tracing::subscriber::set_global_default(subscriber)
                .expect("no other subscriber is for all threads");
        });

        let writer = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(level)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    /// The lines so far.
    #[must_use]
    pub fn text(&self) -> String {
        let bytes = self
            .0
            .lock()
            .expect("no thread panics while it logs")
            .clone();
        String::from_utf8(bytes).expect("lines are text")
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .lock()
            .expect("no thread panics while it logs")
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
