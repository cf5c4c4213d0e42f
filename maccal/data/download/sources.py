"""Where the publishers keep their data sets, and what their files must be.

Addresses, sizes and checksums of what is downloaded, and of what is inside. Zenodo publishes the
checksums of CIFAR-C and Toronto those of CIFAR; the others are those that widely used loaders
demand. Tiny ImageNet has a checksum of the archive only, so its files can be looked for but not
compared.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

LIMIT = 16 * 10**9  # bytes: the largest download or archive if its size is not known
ENDINGS = (".tar", ".tar.gz", ".zip")


@dataclass(frozen=True)
class Known:
    """What is known about a file; None is not known."""

    size: int | None = None  # bytes
    checksum: str | None = None  # "md5:..." or "sha256:..."


@dataclass(frozen=True)
class Source:
    """One file to download: an archive that unpacks to `folder`, or a plain file for it."""

    url: str
    size: int | None  # bytes
    checksum: str
    folder: str
    unpacked: int = LIMIT  # bytes: an archive that holds more is refused
    # What an archive must hold, by path below the folder
    files: Mapping[str, Known] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """The name of the file at the end of the address."""
        return urlsplit(self.url).path.rsplit("/", 1)[-1]

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    @property
    def is_archive(self) -> bool:
        return self.file.endswith(ENDINGS)

    @property
    def contents(self) -> Mapping[str, Known]:
        """What must be in the folder afterwards."""
        return self.files if self.is_archive else {self.file: Known(self.size, self.checksum)}


def corrupted(labels: str, images: Mapping[str, str]) -> dict[str, Known]:
    """The files of a CIFAR-C, all uint8 .npy: 50,000 labels, and as many images per corruption."""
    files = {f"{name}.npy": Known(153_600_128, f"md5:{md5}") for name, md5 in images.items()}
    return {"labels.npy": Known(50_128, f"md5:{labels}"), **files}


SOURCES: Mapping[str, tuple[Source, ...]] = {
    "cifar10": (
        Source(
            url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
            size=170_498_071,
            checksum="md5:c58f30108f718f92721af3b95e74349a",
            folder="cifar-10-batches-py",
            unpacked=200_000_000,
            files={
                "data_batch_1": Known(31_035_704, "md5:c99cafc152244af753f735de768cd75f"),
                "data_batch_2": Known(31_035_320, "md5:d4bba439e000b95fd0a9bffe97cbabec"),
                "data_batch_3": Known(31_035_999, "md5:54ebc095f3ab1f0389bbae665268c751"),
                "data_batch_4": Known(31_035_696, "md5:634d18415352ddfa80567beed471001a"),
                "data_batch_5": Known(31_035_623, "md5:482c414d41f54cd18b22e5b47cb7c3cb"),
                "test_batch": Known(31_035_526, "md5:40351d587109b95175f43aff81a1287e"),
                "batches.meta": Known(158, "md5:5ff9c542aee3614f3951f8cda6e48888"),
            },
        ),
    ),
    "cifar100": (
        Source(
            url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
            size=169_001_437,
            checksum="md5:eb9058c3a382ffc7106e4002c42a8d85",
            folder="cifar-100-python",
            unpacked=200_000_000,
            files={
                "train": Known(155_249_918, "md5:16019d7e3df5f24257cddd939b257f8d"),
                "test": Known(31_049_707, "md5:f0ef6b0ae62326f3e7ffdfab6717acfc"),
                "meta": Known(1_473, "md5:7973b15100ade9c7d40fb424638fde48"),
            },
        ),
    ),
    "tiny-imagenet": (
        Source(
            url="http://cs231n.stanford.edu/tiny-imagenet-200.zip",
            size=248_100_043,
            checksum="md5:90528d7ca1a48142e341f4ef8d21d0de",
            folder="tiny-imagenet-200",
            unpacked=600_000_000,
            files={
                "wnids.txt": Known(),
                "words.txt": Known(),
                "val/val_annotations.txt": Known(),
            },
        ),
    ),
    "svhn": (
        Source(
            url="http://ufldl.stanford.edu/housenumbers/train_32x32.mat",
            size=182_040_794,
            checksum="md5:e26dedcc434d2e4c54c9b2d4a06d8373",
            folder="svhn",
        ),
        Source(
            url="http://ufldl.stanford.edu/housenumbers/test_32x32.mat",
            size=64_275_384,
            checksum="md5:eb5a983be6a315427106f1b164d9cef3",
            folder="svhn",
        ),
    ),
    "cifar10-c": (
        Source(
            url="https://zenodo.org/records/2535967/files/CIFAR-10-C.tar",
            size=2_918_471_680,
            checksum="md5:56bf5dcef84df0e2308c6dcbcbbd8499",
            folder="CIFAR-10-C",
            unpacked=3_000_000_000,
            files=corrupted(
                labels="c439b113295ed5254878798ffe28fd54",
                images={
                    "brightness": "0a81ef75e0b523c3383219c330a85d48",
                    "contrast": "3c8262171c51307f916c30a3308235a8",
                    "defocus_blur": "7d1322666342a0702b1957e92f6254bc",
                    "elastic_transform": "9421657c6cd452429cf6ce96cc412b5f",
                    "fog": "7b397314b5670f825465fbcd1f6e9ccd",
                    "frost": "31f6ab3bce1d9934abfb0cc13656f141",
                    "gaussian_blur": "c33370155bc9b055fb4a89113d3c559d",
                    "gaussian_noise": "ecaf8b9a2399ffeda7680934c33405fd",
                    "glass_blur": "7361fb4019269e02dbf6925f083e8629",
                    "impulse_noise": "2090e01c83519ec51427e65116af6b1a",
                    "jpeg_compression": "2b9cc4c864e0193bb64db8d7728f8187",
                    "motion_blur": "fffa5f852ff7ad299cfe8a7643f090f4",
                    "pixelate": "0f14f7e2db14288304e1de10df16832f",
                    "saturate": "1cfae0964219c5102abbb883e538cc56",
                    "shot_noise": "3a7239bb118894f013d9bf1984be7f11",
                    "snow": "bb238de8555123da9c282dea23bd6e55",
                    "spatter": "8a5a3903a7f8f65b59501a6093b4311e",
                    "speckle_noise": "ef00b87611792b00df09c0b0237a1e30",
                    "zoom_blur": "6ea8e63f1c5cdee1517533840641641b",
                },
            ),
        ),
    ),
    "cifar100-c": (
        Source(
            url="https://zenodo.org/records/3555552/files/CIFAR-100-C.tar",
            size=2_918_473_216,
            checksum="md5:11f0ed0f1191edbf9fa23466ae6021d3",
            folder="CIFAR-100-C",
            unpacked=3_000_000_000,
            files=corrupted(
                labels="bb4026e9ce52996b95f439544568cdb2",
                images={
                    "brightness": "f22d7195aecd6abb541e27fca230c171",
                    "contrast": "322bb385f1d05154ee197ca16535f71e",
                    "defocus_blur": "d923e3d9c585a27f0956e2f2ad832564",
                    "elastic_transform": "a0792bd6581f6810878be71acedfc65a",
                    "fog": "4efc7ebd5e82b028bdbe13048e3ea564",
                    "frost": "3a39c6823bdfaa0bf8b12fe7004b8117",
                    "gaussian_blur": "5204ba0d557839772ef5a4196a052c3e",
                    "gaussian_noise": "ecc4d366eac432bdf25c024086f5e97d",
                    "glass_blur": "0bf384f38e5ccbf8dd479d9059b913e1",
                    "impulse_noise": "3b3c210ddfa0b5cb918ff4537a429fef",
                    "jpeg_compression": "c851b7f1324e1d2ffddeb76920576d11",
                    "motion_blur": "732a7e2e54152ff97c742d4c388c5516",
                    "pixelate": "96c00c60f144539e14cffb02ddbd0640",
                    "saturate": "c0697e9fdd646916a61e9c312c77bf6b",
                    "shot_noise": "b0a1fa6e1e465a747c1b204b1914048a",
                    "snow": "0237be164583af146b7b144e73b43465",
                    "spatter": "12ccf41d62564d36e1f6a6ada5022728",
                    "speckle_noise": "e3f215b1a0f9fd9fd6f0d1cf94a7ce99",
                    "zoom_blur": "0204613400c034a81c4830d5df81cb82",
                },
            ),
        ),
    ),
}
