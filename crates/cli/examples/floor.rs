//! How few instructions may reading a log take? The lines of a log in the combined format, split by `memchr`, with the address and
//! the time of each parsed: `tollgate simulate` is held to three times this.
//!
//! ```text
//! cargo build --release -p tollgate-cli --examples --bins
//! target/release/examples/traffic 200000 > target/access.log
//! valgrind --tool=callgrind target/release/examples/floor target/access.log
//! valgrind --tool=callgrind target/release/tollgate simulate target/access.log crates/cli/tests/cmd/simulate.in/limits.toml
//! ```

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::net::IpAddr;

use chrono::NaiveDate;
use memchr::{memchr, memchr_iter};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("expected a log")?;
    let text = fs::read(path)?;
    let (mut start, mut lines, mut fields, mut sum) = (0, 0_u64, 0_u64, 0_i64);
    for end in memchr_iter(b'\n', &text) {
        let line = &text[start..end];
        start = end + 1;
        lines += 1;
        fields += memchr_iter(b' ', line).count() as u64;
        let address = &line[..memchr(b' ', line).ok_or("no blank")?];
        let address: IpAddr = std::str::from_utf8(address)?.parse()?;
        let bracket = memchr(b'[', line).ok_or("no time")?;
        let time_s = time(&line[bracket + 1..]).ok_or("invalid time")?;
        sum = sum.wrapping_add(time_s + i64::from(address.is_ipv4()));
    }
    writeln!(io::stdout(), "{lines} lines, {fields} fields, {sum}")?;
    Ok(())
}

/// Seconds since the Unix epoch of `10/Oct/2000:13:55:36 -0700`, in the plainest way.
fn time(text: &[u8]) -> Option<i64> {
    let number = |from: usize, to: usize| {
        text[from..to].iter().try_fold(0_u32, |number, digit| {
            let digit = digit.wrapping_sub(b'0');
            (digit < 10).then(|| number * 10 + u32::from(digit))
        })
    };
    const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let month = MONTHS.chunks(3).position(|month| *month == text[3..6])?;
    let month = u32::try_from(month).ok()? + 1;
    let date = NaiveDate::from_ymd_opt(i32::try_from(number(7, 11)?).ok()?, month, number(0, 2)?)?;
    let time = date.and_hms_opt(number(12, 14)?, number(15, 17)?, number(18, 20)?)?;
    let offset = i64::from(number(22, 24)? * 3_600 + number(24, 26)? * 60);
    let east = if text[21] == b'-' { -offset } else { offset };
    Some(time.and_utc().timestamp() - east)
}
