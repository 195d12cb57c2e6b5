// node browser_checks.js CHROMIUM VERSION URL...: the checks in a page of a real browser.
'use strict';

const fs = require('node:fs');
const http = require('node:http');
const path = require('node:path');
const { chromium } = require('playwright-core');

const [executablePath, version, ...urls] = process.argv.slice(2);
const PAGE = '<!doctype html><title>MQTT.js</title><script src="/mqtt.js"></script><script src="/checks.js"></script>';
const FILES = {
  '/mqtt.js': require.resolve('mqtt/dist/mqtt.min'),
  '/checks.js': path.join(__dirname, 'checks.js'),
};

async function main() {
  const server = http.createServer((request, response) => {
    const file = FILES[request.url];
    response.setHeader('content-type', file ? 'text/javascript; charset=utf-8' : 'text/html; charset=utf-8');
    response.end(file ? fs.readFileSync(file) : PAGE);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const browser = await chromium.launch({
    executablePath,
    headless: true,
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
      '--disable-component-update', '--disable-sync', '--ignore-certificate-errors'],
  });
  try {
    const page = await browser.newPage();
    page.on('console', (message) => console.log(message.text()));
    page.on('pageerror', (error) => console.error(error));
    await page.goto(`http://127.0.0.1:${server.address().port}/`);
    console.log('browser', browser.version());
    await page.evaluate(
      ([urls, version]) => runChecks(mqtt, urls, version, console.log),
      [urls, Number(version)],
    );
  } finally {
    await browser.close();
    server.close();
  }
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
