//! Looks at the files with the keys of tokens now and then: changed ones take the place of the old; ones that are of no use are said, and
//! the old keys stay.

use std::time::Duration;

use super::watch::Seen;
use crate::auth::{FileRbac, Jwt};
use crate::config::jwt::{self, Finding, JwtSettings};

/// The keys as they were last seen.
pub struct KeyWatch {
    jwt: Jwt,
    seen: Vec<Option<Seen>>,
}

impl KeyWatch {
    /// Reads the keys for the start. Blocks.
    pub fn start(settings: JwtSettings, rbac: Option<FileRbac>) -> Self {
        let seen = look(&settings);
        // The check of the configuration read them a moment ago, and refuses the start where they are of no use.
        let keys = jwt::load(&settings.sources).map(|loaded| loaded.keys);
        if let Err(findings) = &keys {
            tell(findings, "the keys of tokens are of no use, nobody is let in by one until they are corrected");
        }
        Self { jwt: Jwt::new(settings, keys.unwrap_or_default(), rbac), seen }
    }

    pub fn jwt(&self) -> &Jwt {
        &self.jwt
    }

    /// Takes over changed files. Blocks.
    fn check(&mut self) {
        let settings = self.jwt.settings();
        let seen = look(settings);
        if seen == self.seen {
            return;
        }
        match jwt::load(&settings.sources) {
            Ok(loaded) => {
                for finding in &loaded.warnings {
                    tracing::warn!("a key of tokens: {}", finding.message);
                }
                let keys = loaded.keys.len();
                self.jwt.replace(loaded.keys);
                tracing::info!(keys, names = ?self.jwt.key_names(), "the keys of tokens have changed; clients that connect from now on are judged by them");
            }
            Err(findings) => tell(&findings, "changed keys of tokens are of no use, those from before stay in force"),
        }
        self.seen = seen;
    }
}

fn look(settings: &JwtSettings) -> Vec<Option<Seen>> {
    settings.sources.files().into_iter().map(Seen::at).collect()
}

fn tell(findings: &[Finding], what: &str) {
    for finding in findings {
        tracing::error!("{what}: {}", finding.message);
    }
}

/// Checks at each interval, for as long as it is polled.
pub async fn run(mut watch: KeyWatch) {
    let period = Duration::from_secs(watch.jwt.settings().reload_interval_s.into());
    loop {
        actix_rt::time::sleep(period).await;
        let checked = actix_rt::task::spawn_blocking(move || {
            watch.check();
            watch
        });
        let Ok(back) = checked.await else { return };
        watch = back;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::jwt::KeySources;

    #[test]
    fn a_changed_set_is_taken_and_one_that_is_of_no_use_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let jwks = folder.path().join("jwks.json");
        // Another inode each time: nothing depends on the clock of the file system.
        let put = |text: &str| {
            let new = folder.path().join("new");
            fs::write(&new, text).unwrap();
            fs::rename(&new, &jwks).unwrap();
        };
        let set = |kid: &str| format!("{{\"keys\": [{{\"kty\": \"oct\", \"kid\": \"{kid}\", \"k\": \"AQAB\"}}]}}");
        let sources = KeySources {
            secret: None,
            secret_file: None,
            secret_base64: false,
            public_keys: Vec::new(),
            jwks: Some(jwks.clone()),
        };
        let settings = JwtSettings { reload_interval_s: 1, leeway_s: 0, ..JwtSettings::of(sources) };
        let mut watch = KeyWatch::start(settings, None);
        let names = |watch: &KeyWatch| watch.jwt.key_names();
        assert!(names(&watch).is_empty(), "there is no file");
        let mut checked = |text: Option<&str>| {
            match text {
                Some(text) => put(text),
                None => fs::remove_file(&jwks).unwrap(),
            }
            watch.check();
            names(&watch)
        };
        assert_eq!(checked(Some(&set("a"))), ["a"]);
        assert_eq!(checked(Some(&set("b"))), ["b"]);
        assert_eq!(checked(Some("{\"keys\": []}")), ["b"]);
        assert_eq!(checked(None), ["b"]);
        assert_eq!(checked(Some(&set("c"))), ["c"]);
    }
}
