"""Parquet files as the daemon writes them: in pure Python, page by page, with zstd alone.

``thrift`` has the protocol of the metadata, ``column`` what a column is, ``pages`` the encodings,
``chunk`` one column of a row group, ``writer`` the file, and ``footer`` the file's end, written
and read. Nothing here knows events or segments. Whoever wants values back has pyarrow.

The format is https://github.com/apache/parquet-format: its ``parquet.thrift`` names every field
and every number used here, and ``Encodings.md`` the bytes of the pages.
"""
