//! The rates that are tried.

/// The number of rates.
pub(super) const RATES: usize = 30;

/// A rate: so many in so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) limit: u64,
    pub(super) period_us: u64,
}

const fn each(unit_us: u64, limits: &[u64], rates: &mut [Rate; RATES], from: usize) {
    let mut place = 0;
    while place < limits.len() {
        rates[from + place] = Rate {
            limit: limits[place],
            period_us: unit_us,
        };
        place += 1;
    }
}

/// Numbers that people write, from one an hour to ten thousand a second.
pub(super) const ALL: [Rate; RATES] = {
    let mut rates = [Rate {
        limit: 1,
        period_us: 1,
    }; RATES];
    each(3_600_000_000, &[1, 2, 5, 10, 20, 30], &mut rates, 0);
    each(60_000_000, &[1, 2, 3, 5, 10, 15, 20, 30], &mut rates, 6);
    let per_second = [
        1, 2, 3, 5, 10, 20, 30, 50, 100, 200, 300, 500, 1_000, 2_000, 5_000, 10_000,
    ];
    each(1_000_000, &per_second, &mut rates, 14);
    rates
};

impl Rate {
    /// The rate as a configuration writes it.
    pub(super) fn text(self) -> String {
        let unit = match self.period_us {
            3_600_000_000 => "h",
            60_000_000 => "min",
            _ => "s",
        };
        format!("{}/{unit}", self.limit)
    }

    /// The most that a caller with this rate and a burst can do in a time, with the fraction of a request that is left.
    pub(super) fn most_in(self, burst: u32, time_us: u64) -> u128 {
        let period = u128::from(self.period_us);
        u128::from(burst) + u128::from(self.limit) * u128::from(time_us) / period
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rates_are_distinct_and_grow() {
        let faster = |a: Rate, b: Rate| {
            u128::from(a.limit) * u128::from(b.period_us)
                < u128::from(b.limit) * u128::from(a.period_us)
        };
        assert!(ALL.windows(2).all(|pair| faster(pair[0], pair[1])));
    }
}
