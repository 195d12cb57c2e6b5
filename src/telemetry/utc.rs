//! Moments as dates of the UTC calendar.

/// A moment, to the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Utc {
    pub year: u64,
    pub month: u64,
    pub day: u64,
    pub hour: u64,
    pub minute: u64,
    pub second: u64,
}

impl Utc {
    /// Seconds since the epoch.
    pub fn of(seconds: u64) -> Self {
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        // Years that begin in March, in eras of 400 (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        Self { year, month, day, hour: second / 3600, minute: second / 60 % 60, second: second % 60 }
    }

    /// `yyyyMMdd-hh-mm-ss`.
    pub fn for_file_name(self) -> String {
        let Self { year, month, day, hour, minute, second } = self;
        format!("{year:04}{month:02}{day:02}-{hour:02}-{minute:02}-{second:02}")
    }

    /// `yyyy-MM-dd HH:mm:ss`.
    pub fn for_log(self) -> String {
        let Self { year, month, day, hour, minute, second } = self;
        format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_as_a_date() {
        let table = [
            (0, "19700101-00-00-00", "1970-01-01 00:00:00"),
            (951_782_399, "20000228-23-59-59", "2000-02-28 23:59:59"),
            (951_782_400, "20000229-00-00-00", "2000-02-29 00:00:00"),
            (951_868_800, "20000301-00-00-00", "2000-03-01 00:00:00"),
            (1_700_000_000, "20231114-22-13-20", "2023-11-14 22:13:20"),
            (4_107_542_400, "21000301-00-00-00", "2100-03-01 00:00:00"),
        ];
        for (seconds, file_name, log) in table {
            let utc = Utc::of(seconds);
            assert_eq!((utc.for_file_name().as_str(), utc.for_log().as_str()), (file_name, log));
        }
    }
}
