#!/bin/sh
# Makes a key and a certificate that it signs itself, tls.key and tls.crt, in the folder of a config.xml: for a first try, and for clients that are
# given tls.crt as their authority. Usage: config/examples/certificate.sh config/examples/smart-car/conf
set -eu
cd "${1:?the folder of the config.xml}"
umask 077
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365 \
  -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout tls.key -out tls.crt 2>/dev/null
echo "made $PWD/tls.crt and $PWD/tls.key"
