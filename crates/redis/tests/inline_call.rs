//! An inline call in every order that threads can take: its own waiter drives it, and another thread takes it over meanwhile.
//!
//! The module is the backend's own, with loom's lock and threads in place of std's and tokio's.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::drop_non_drop,
    clippy::let_unit_value,
    clippy::unused_self,
    reason = "a runtime that is a few threads has nothing to be left, to hand out, or to know"
)]

#[path = "../src/inline_call.rs"]
mod inline_call;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};

use loom::future::block_on;
use loom::model::Builder;
use loom::thread;
use tokio::sync::oneshot;

use inline_call::{AnswerFuture, InlineCall};
use job::Delivery;
use sync::{Handle, Mutex};

mod job {
    #[derive(Debug)]
    pub(crate) struct Delivery;
}

mod sync {
    use std::sync::Arc;

    pub(crate) use loom::sync::{Mutex, MutexGuard};
    use loom::thread::{self, JoinHandle};

    pub(crate) struct RuntimeGuard;

    /// A runtime with a thread for each task.
    #[derive(Clone, Default)]
    pub(crate) struct Handle(pub(crate) Arc<Mutex<Vec<JoinHandle<()>>>>);

    impl Handle {
        pub(crate) fn enter(&self) -> Option<RuntimeGuard> {
            Some(RuntimeGuard)
        }

        pub(crate) fn spawn(&self, run: impl Future<Output = ()> + 'static) {
            let task = thread::spawn(move || loom::future::block_on(run));
            self.0.lock().unwrap().push(task);
        }
    }
}

/// A server that answers at some time, and wakes the task that asked last.
#[derive(Default)]
struct Server(Mutex<(bool, Option<Waker>)>);

impl Server {
    fn answer(&self) {
        let (has_answered, waker) = &mut *self.0.lock().unwrap();
        *has_answered = true;
        if let Some(waker) = waker.take() {
            waker.wake();
        }
    }

    async fn answered(&self) {
        poll_fn(|cx| {
            let (has_answered, waker) = &mut *self.0.lock().unwrap();
            *waker = Some(cx.waker().clone());
            if *has_answered {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

struct Played {
    waiting: AnswerFuture,
    inline: Arc<InlineCall>,
    server: Arc<Server>,
    runtime: Handle,
    /// The number of times that the call came to its end.
    ends: Arc<AtomicUsize>,
}

fn play() -> Played {
    let (server, runtime) = (Arc::new(Server::default()), Handle::default());
    let ends = Arc::new(AtomicUsize::new(0));
    let (sender, answer) = oneshot::channel();
    let run = {
        let (server, ends) = (Arc::clone(&server), Arc::clone(&ends));
        async move {
            server.answered().await;
            ends.fetch_add(1, Ordering::SeqCst);
            drop(sender.send(Delivery));
        }
    };
    let inline = InlineCall::new(runtime.clone(), run);
    let waiting = AnswerFuture {
        answer,
        inline: Some(Arc::clone(&inline)),
    };
    Played {
        waiting,
        inline,
        server,
        runtime,
        ends,
    }
}

/// Waits for all tasks. Returns the number of times that the call came to its end.
fn ended(runtime: &Handle, ends: &AtomicUsize) -> usize {
    loop {
        let Some(task) = runtime.0.lock().unwrap().pop() else {
            return ends.load(Ordering::SeqCst);
        };
        task.join().unwrap();
    }
}

fn in_every_order(play: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(play);
}

#[test]
fn whoever_drives_a_call_its_waiter_hears_of_it_and_it_ends_once() {
    in_every_order(|| {
        let played = play();
        let (server, inline) = (played.server, played.inline);

        let answering = thread::spawn(move || server.answer());
        let taking = thread::spawn(move || inline.take_over());
        let heard = block_on(played.waiting);

        assert!(heard.is_ok());
        answering.join().unwrap();
        taking.join().unwrap();
        assert_eq!(ended(&played.runtime, &played.ends), 1);
    });
}

#[test]
fn a_call_whose_waiter_has_gone_comes_to_its_end_all_the_same() {
    in_every_order(|| {
        let played = play();
        let (server, inline) = (played.server, played.inline);

        let answering = thread::spawn(move || server.answer());
        let taking = thread::spawn(move || inline.take_over());
        drop(played.waiting);

        answering.join().unwrap();
        taking.join().unwrap();
        assert_eq!(ended(&played.runtime, &played.ends), 1);
    });
}

/// Other callers may wait for a connection that an inline call holds while its future is slow to be polled.
#[test]
fn a_call_that_was_taken_over_needs_its_waiter_no_more() {
    in_every_order(|| {
        let mut played = play();
        let (server, inline) = (played.server, played.inline);

        let answering = thread::spawn(move || server.answer());
        let taking = thread::spawn(move || inline.take_over());
        let once = poll_fn(|cx| Poll::Ready(Pin::new(&mut played.waiting).poll(cx).is_ready()));
        let _has_heard = block_on(once);

        answering.join().unwrap();
        taking.join().unwrap();
        assert_eq!(ended(&played.runtime, &played.ends), 1);
    });
}
