//! `config.xml` in three steps: entity (the XML's shape) -> check (defaults, bounds, says what it clamped) -> settings.

pub mod settings;

pub use settings::Settings;
