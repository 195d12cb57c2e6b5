#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| troupemq::fuzzing::decode_v3_1_1(data));
