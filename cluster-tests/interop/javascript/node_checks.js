// node node_checks.js VERSION URL...: the checks in Node.js.
'use strict';

const mqtt = require('mqtt');
const { runChecks } = require('./checks.js');

const [version, ...urls] = process.argv.slice(2);
runChecks(mqtt, urls, Number(version), console.log).then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
