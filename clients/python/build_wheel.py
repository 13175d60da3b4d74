"""Makes the wheel, for pip: one file in a folder, so no build tool has to be fetched first."""
import base64
import hashlib
import os
import zipfile

NAME, VERSION = "traind", "0.1.0"
INFO = f"{NAME}-{VERSION}.dist-info"
HERE = os.path.dirname(os.path.abspath(__file__))


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    with open(os.path.join(HERE, "traind", "__init__.py"), "rb") as f:
        module = f.read()
    files = {
        "traind/__init__.py": module,
        f"{INFO}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\nRequires-Python: >=3.8\n".encode(),
        f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nGenerator: traind\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}\n")
    files[f"{INFO}/RECORD"] = ("".join(rows) + f"{INFO}/RECORD,,\n").encode()
    wheel = f"{NAME}-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, wheel), "w", zipfile.ZIP_DEFLATED) as z:
        for name, data in files.items():
            z.writestr(name, data)
    return wheel
