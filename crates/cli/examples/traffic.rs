//! How does a log look whose truth is known? A generator of traffic in the combined format, from a stated model:
//!
//! | callers | how they come |
//! | --- | --- |
//! | readers, most of all | each reads pages by day more than by night: a page and its seven parts in one second, and never another page within 10 s |
//! | an office of 200 readers behind one address | the same, each with a program of its own |
//! | a broken client | tries again five times a second for two hours |
//! | a scanner | 40 requests a second for ten minutes |
//!
//! So a reader needs a burst of 8 and a rate of 48 a minute at most, and the two at the end need far more.
//!
//! ```text
//! cargo run --release -p tollgate-cli --example traffic -- 5000000 > access.log
//! ```

#[path = "../tests/it/support/traffic.rs"]
mod traffic;

use std::error::Error;
use std::io::{self, BufWriter, Write};

fn main() -> Result<(), Box<dyn Error>> {
    let requests = std::env::args()
        .nth(1)
        .ok_or("expected a number of requests")?;
    let mut out = BufWriter::new(io::stdout().lock());
    traffic::write(requests.parse()?, &mut out)?;
    out.flush()?;
    Ok(())
}
