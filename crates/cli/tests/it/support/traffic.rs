//! Traffic from a stated model, whose truth is known: see the example `traffic`.

use std::io::{self, Write};

/// The address of the scanner.
pub(crate) const SCANNER: &str = "203.0.113.66";
/// The address of the broken client.
pub(crate) const BROKEN: &str = "203.0.113.77";
/// The address of the office.
pub(crate) const OFFICE: &str = "198.51.100.1";

const DAY_S: u64 = 86_400;
/// Pages of one reader are this far apart at least.
const PAUSE_S: u64 = 10;

/// One request: second of the day, address, path, status, program.
type Request = (u32, String, String, u16, String);

/// Writes a day of some `requests` requests, the same for the same number.
pub(crate) fn write(requests: u64, out: &mut impl Write) -> io::Result<()> {
    let mut random = fastrand::Rng::with_seed(requests);
    let mut all: Vec<Request> = Vec::new();
    let small = requests / 20;
    for number in 0..small.min(40 * 600) {
        let second = u32::try_from(36_000 + number / 40).unwrap_or(0);
        all.push((
            second,
            SCANNER.into(),
            format!("/{}.php", random.u32(..9_999)),
            404,
            "scan/1".into(),
        ));
    }
    for number in 0..small.min(5 * 7_200) {
        let second = u32::try_from(50_000 + number / 5).unwrap_or(0);
        all.push((
            second,
            BROKEN.into(),
            "/api/sync".into(),
            500,
            "sync/0.1".into(),
        ));
    }
    for person in 0..200 {
        let pages = (requests / 10_000).clamp(1, 60);
        read(OFFICE, person, pages, &mut random, &mut all);
    }
    // Readers come until there are enough requests.
    for person in 0.. {
        if all.len() as u64 >= requests {
            break;
        }
        let [_, b, c, d] = u32::to_be_bytes(person + 256);
        let address = format!("100.{}.{c}.{d}", 64 + b % 64);
        read(&address, person, random.u64(1..12), &mut random, &mut all);
    }
    all.sort_by_key(|request| request.0);
    for (second, address, path, status, program) in all {
        let at = u64::from(second);
        let time = format!("{:02}:{:02}:{:02}", at / 3_600, at / 60 % 60, at % 60);
        writeln!(
            out,
            "{address} - - [24/Nov/2026:{time} +0000] \"GET {path} HTTP/1.1\" {status} 512 \"-\" \"{program}\""
        )?;
    }
    Ok(())
}

/// A reader's day: pages with their parts, more by day than by night.
fn read(
    address: &str,
    person: u32,
    pages: u64,
    random: &mut fastrand::Rng,
    all: &mut Vec<Request>,
) {
    let mut seconds: Vec<u64> = (0..pages).map(|_| by_day(random)).collect();
    seconds.sort_unstable();
    let mut earliest = 0;
    for second in seconds {
        let second = second.max(earliest);
        if second >= DAY_S {
            return;
        }
        earliest = second + PAUSE_S;
        let program = format!("Browser/{person}");
        for part in 0..8 {
            let path = format!("/pages/{}/{part}", random.u32(..500));
            let second = u32::try_from(second).unwrap_or(0);
            all.push((second, address.to_owned(), path, 200, program.clone()));
        }
    }
}

/// A second of a day: three of four times between 8 and 20 o'clock.
fn by_day(random: &mut fastrand::Rng) -> u64 {
    if random.u8(..4) < 3 {
        random.u64(8 * 3_600..20 * 3_600)
    } else {
        random.u64(..DAY_S)
    }
}
