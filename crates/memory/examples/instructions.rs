//! Makes a given number of decisions and prints nothing: for counting instructions.
//!
//! ```text
//! cargo build --release -p tollgate-memory --example instructions
//! for n in 100000 300000; do
//!     valgrind --tool=callgrind --callgrind-out-file=/dev/null \
//!         target/release/examples/instructions address $n
//! done
//! ```
//!
//! The difference of the two totals over 200,000 is the cost of one decision, clock and hashing included. A thousand keys take
//! turns and all of them pass. The first word is `address`, `text` or `boxed` (addresses, through the future).

use std::hint::black_box;
use std::net::Ipv4Addr;

use tollgate_core::{Backend, Call, Charge, ImmediateBackend, Key, Mode, Quota, Scope};
use tollgate_memory::MemoryBackend;

fn main() {
    let mut args = std::env::args().skip(1);
    let kind = args.next().unwrap_or_default();
    let calls: usize = args.next().and_then(|n| n.parse().ok()).unwrap_or(0);

    let quota = Quota::per_second(10).burst(1_000_000);
    let scope = Scope::of("instructions", 0, &quota);
    let keys: Vec<Key> = (0..1000_u32)
        .map(|n| match kind.as_str() {
            "text" => Key::from(format!("user-{n:04}")),
            _ => Key::from(Ipv4Addr::from(0x0a00_0000 + n)),
        })
        .collect();
    let backend = MemoryBackend::new();

    for call in 0..calls {
        let charge = Charge {
            scope,
            quota: &quota,
            key: &keys[call % keys.len()],
            cost: 1,
            mode: Mode::Enforce,
        };
        let charges = black_box(std::slice::from_ref(&charge));
        if kind == "boxed" {
            black_box(&backend.decide(Call::of(charges)).try_now());
        } else {
            black_box(&backend.decide_now(Call::of(charges)));
        }
    }
}
